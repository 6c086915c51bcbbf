#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace lockstep {

Progress::Progress(int total_steps)
    : total_steps_(total_steps), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\n");
}

void Progress::show(const StepRecord& record) {
  constexpr auto between = std::chrono::milliseconds(100);
  const auto now = Clock::now();
  const bool last_step = record.step + 1 == total_steps_;
  if (!terminal_ || (drawn_ && now - last_ < between && !last_step)) return;
  last_ = now;
  drawn_ = true;
  constexpr int width = 24;
  const int done = record.step + 1, filled = width * done / total_steps_;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {}/{}  loss {:.4f}  {:.0f} tokens/s  {:.0f} s left \x1b[K",
             "", filled, "", width - filled, done, total_steps_, record.loss,
             record.tokens_per_second, seconds / done * (total_steps_ - done));
  std::fflush(stderr);
}

}  // namespace lockstep
