#include "collectives/transport/transport.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <thread>

namespace lockstep {

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::send_recv:
      return "send_recv";
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_gather:
      return "all_gather";
    case Operation::broadcast:
      return "broadcast";
    case Operation::reduce:
      return "reduce";
    case Operation::gather:
      return "gather";
    case Operation::scatter:
      return "scatter";
    case Operation::all_to_all:
      return "all_to_all";
    case Operation::all_to_all_v:
      return "all_to_all_v";
    case Operation::barrier:
      return "barrier";
  }
  return "unknown";
}

namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter ||
         operation == Operation::reduce;
}
class WallClock final : public RankClock {
 public:
  double now_seconds() const override { return steady_seconds(); }
  double about_now_seconds() const override { return about_steady_seconds(); }
  void advance(double seconds) override { sleep_for(seconds); }
};

}  // namespace

RankClock& wall_clock() {
  static WallClock clock;
  return clock;
}

double steady_seconds() { return seconds_of(CLOCK_MONOTONIC); }
double about_steady_seconds() { return seconds_of(CLOCK_MONOTONIC_COARSE); }
void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::string Signature::text() const {
  if (is_numbered_message())
    return fmt::format("message {} of {}, {} {}", root, algorithm.data(), count, name_of(dtype));
  std::string text(name_of(operation));
  if (algorithm[0] != 0) text += fmt::format("/{}", algorithm.data());
  if (sequence >= 0) text += fmt::format(" #{}", sequence);
  const bool has_count = operation != Operation::all_to_all_v || count != 0;
  text += has_count ? fmt::format(" of {} {}", count, name_of(dtype))
                    : fmt::format(" of {}", name_of(dtype));
  if (reduces(operation) || op != ReduceOp::sum) text += fmt::format(", {}", name_of(op));
  if (root >= 0) text += fmt::format(", root {}", root);
  return text;
}

}  // namespace lockstep
