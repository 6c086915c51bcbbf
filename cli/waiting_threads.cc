#include "cli/waiting_threads.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace lockstep {
namespace {

// Returns the number of runnable threads of this machine, excluding this one.
int running_others() {
  std::ifstream file("/proc/loadavg");
  double minutes = 0;
  int running = 1;
  file >> minutes >> minutes >> minutes >> running;
  return std::max(0, running - 1);
}

// Returns the minimum of several samples: a busy program is in each.
int busy_others() {
  int least = running_others();
  for (int look = 0; look < 4 && least > 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    least = std::min(least, running_others());
  }
  return least;
}

// The bound is in iterations of libgomp's loop, some 10 ns each. On an idle machine, 1,000 cost a
// tenth of training's speed and 10,000 nothing; the busier other programs are, the more each
// iteration costs.
const char* fitting_bound(int others, int cores) {
  if (others == 0) return "10000";
  return others < cores ? "1000" : "0";
}

}  // namespace

void bound_spinning(char** arguments) {
  constexpr const char* setting = "GOMP_SPINCOUNT";
  if (std::getenv(setting) || std::getenv("OMP_WAIT_POLICY")) return;
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (error || setenv(setting, fitting_bound(busy_others(), cores), 1) != 0) return;
  execv(program.c_str(), arguments);
}

}  // namespace lockstep
