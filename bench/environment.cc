#include "bench/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "bench/build_info.h"

namespace lockstep {
namespace {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

nlohmann::ordered_json environment_json() {
  utsname system{};
  uname(&system);
  const double memory_bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return {{"time", utc_now()},
          {"processor", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", memory_bytes},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"compiler", build_info::compiler},
          {"build", build_info::type},
          {"version", build_info::version},
          {"commit", build_info::commit}};
}

}  // namespace lockstep
