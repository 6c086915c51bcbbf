#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace lockstep {

Progress::Progress(int total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\n");
}

void Progress::show(int done, std::string_view text) {
  constexpr auto between = std::chrono::milliseconds(100);
  const auto now = Clock::now();
  if (!terminal_ || (drawn_ && now - last_ < between && done != total_)) return;
  last_ = now;
  drawn_ = true;
  constexpr int width = 24;
  const int filled = width * done / total_;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {}/{}{}  {:.0f} s left \x1b[K", "", filled, "",
             width - filled, done, total_, text, seconds / done * (total_ - done));
  std::fflush(stderr);
}

void Progress::show(const StepRecord& record) {
  show(record.step + 1,
       fmt::format("  loss {:.4f}  {:.0f} tokens/s", record.loss, record.tokens_per_second));
}

}  // namespace lockstep
