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

// Threads of this machine that run or could run, this one not counted.
int running_others() {
  std::ifstream file("/proc/loadavg");
  double minutes = 0;
  int running = 1;
  file >> minutes >> minutes >> minutes >> running;
  return std::max(0, running - 1);
}

// The least of several looks: a program that is busy is seen in each.
int busy_others() {
  int least = running_others();
  for (int look = 0; look < 4 && least > 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    least = std::min(least, running_others());
  }
  return least;
}

// In turns of libgomp's loop, some 10 ns each. Alone, 1,000 cost a tenth of a training's speed and
// 10,000 nothing; the busier the others, the more each turn costs.
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
