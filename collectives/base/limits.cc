#include "collectives/base/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

// The first number in a file of the kernel; unlimited without one.
double number_in(const std::string& path) {
  double number = 0;
  return std::ifstream(path) >> number ? number : unlimited;
}

double machine_bytes() {
  std::ifstream lines("/proc/meminfo");
  for (std::string name, unit; lines >> name;) {
    double kibibytes = 0;
    if (name == "MemAvailable:" && lines >> kibibytes) return kibibytes * 1024;
    std::getline(lines, unit);
  }
  return unlimited;
}

// Addresses reserved for kernels that libraries generate and for stacks of threads (measured).
// Without them libraries end the process with a signal.
constexpr double of_libraries = 256 << 20;

// What `ulimit -v` or `ulimit -d` leaves: the limit, less the address space in use or its writable
// part.
double process_bytes() {
  double pages[6] = {};  // of /proc/self/statm: the address space is the first, data the sixth
  std::ifstream numbers("/proc/self/statm");
  for (double& number : pages) numbers >> number;
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  double least = unlimited;
  for (const auto& [resource, taken] : {std::pair(RLIMIT_AS, pages[0] * page + of_libraries),
                                        std::pair(RLIMIT_DATA, pages[5] * page)}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    least = std::min(least, std::max(0.0, static_cast<double>(limit.rlim_cur) - taken));
  }
  return least;
}

// What a container leaves: version 2 of control groups, then version 1.
double group_bytes() {
  const std::string folder = "/sys/fs/cgroup/", old = folder + "memory/memory.";
  const double room = number_in(folder + "memory.max") - number_in(folder + "memory.current");
  const double old_room = number_in(old + "limit_in_bytes") - number_in(old + "usage_in_bytes");
  // Unlimited less unlimited is not a number.
  return std::min(room >= 0 ? room : unlimited, old_room >= 0 ? old_room : unlimited);
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) bytes /= 1024, ++unit;
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

}  // namespace

double address_limit() {
  rlimit limit{};
  const bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? static_cast<double>(limit.rlim_cur) : unlimited;
}

double available_bytes() { return std::min({machine_bytes(), process_bytes(), group_bytes()}); }

void require_memory(double bytes, std::string_view what, std::string_view hint) {
  constexpr double few_bytes = 64 << 20;  // checking takes longer than small requests
  if (bytes <= few_bytes) return;
  const double available = available_bytes();
  require(
      bytes <= available,
      [&] {
        return fmt::format("{} needs about {} of memory, and {} are available", what,
                           bytes_text(bytes), bytes_text(available));
      },
      hint);
}

void require_threads(double count, std::string_view what, std::string_view hint) {
  constexpr double most = 16384;  // the memory maps of a process allow twice as many
  require(
      count <= most,
      [&] {
        return fmt::format("{} needs {:.0f} threads; the limit is {:.0f}", what, count, most);
      },
      hint);
  std::atomic<bool> is_over = false;
  std::vector<std::jthread> threads;
  std::string failure;
  try {
    while (static_cast<double>(threads.size()) < count)
      threads.emplace_back([&is_over] { is_over.wait(false); });
  } catch (const std::system_error& error) {
    failure = fmt::format("{} needs {:.0f} threads, and the system allows {}: {}", what, count,
                          threads.size(), error.code().message());
  }
  is_over = true;
  is_over.notify_all();
  threads.clear();
  require(failure.empty(), failure, hint);
}

}  // namespace lockstep
