#include "parallel/checkpoint/own_numbers.h"

#include <fmt/format.h>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "parallel/checkpoint/files.h"

namespace lockstep {

std::string own_name(int rank, std::size_t set, const std::string& name) {
  return fmt::format("rank-{:05}.{}.{}", rank, set, name);
}

void CheckpointReader::restore_own(const std::vector<TrainingState>& sets, int rank) {
  std::vector<std::byte> memory;
  for (std::size_t set = 0; set < sets.size(); ++set)
    for (const auto& [name, numbers] : sets[set].own) {
      const std::string tensor = own_name(rank, set, name);
      const auto sources = sources_.find({tensor, own_state});
      require(
          sources != sources_.end() && sources->second.front().stored->box.count() == numbers.count,
          fmt::format("{} does not have the {} numbers of '{}'", folder_, numbers.count, tensor),
          "only the plan that wrote it resumes it: see 'plan' in its index.json");
      in_row(numbers, [&](Count first, Slice part) {
        memory.resize(static_cast<std::size_t>(part.bytes()));
        const Slice dense{memory.data(), part.count, part.dtype, &host_device()};
        read(tensor, own_state, {{0, 1}, {first, part.count}}, dense);
        part.device->copy(part, dense);
      });
    }
}

}  // namespace lockstep
