#include "parallel/technique.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "parallel/data/ddp.h"
#include "parallel/serial/serial.h"

namespace lockstep {

const std::vector<TechniqueEntry>& techniques() {
  static const std::vector<TechniqueEntry> entries = {
      {"serial", "one rank, the reference", {1}, check_serial, make_serial},
      {"ddp",
       "data parallel: gradients all-reduced in buckets beside backward",
       {2, 4},
       check_ddp,
       make_ddp},
  };
  return entries;
}

const TechniqueEntry& technique(std::string_view name) {
  std::string known;
  for (const TechniqueEntry& entry : techniques()) {
    if (entry.name == name) return entry;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  require(false, fmt::format("unknown technique '{}'", name),
          fmt::format("choose one of {}", known));
  return techniques().front();
}

}  // namespace lockstep
