// How much more memory than allowed a submission needs. The kernel keeps the limits, so this is known
// without asking the submission.
#pragma once

#include <string>
#include <vector>

#include "labs/grader/mistakes.h"
#include "labs/grader/ranks.h"

namespace lockstep {

// Limits, and whether the submission ends within them.
class LimitedCase final : public JudgedCase {
 public:
  LimitedCase(WorldOptions options, bool ends) : options_(std::move(options)), ends_(ends) {}
  WorldOptions options() const override { return options_; }
  bool is_given_by(const WorldRun& run, Compared) const override {
    return run.fault.empty() == ends_;
  }
  // Both bounds of a need together are enough to compare.
  std::optional<std::int64_t> wrong_numbers(Compared) const override { return 1; }

 private:
  WorldOptions options_;
  bool ends_;
};

struct MemoryNeed {
  std::int64_t more_bytes = 0;  // of each rank; 0: unknown
  // The least memory with which it ends, and the most with which it does not.
  std::vector<LimitedCase> bounds = {};
};

// In steps of `step` bytes beyond the limits of `limited`, in which it does not end. Unknown if it
// does not end with a multiple of that either.
MemoryNeed memory_need(Runner& submission, const WorldOptions& limited, std::int64_t step);

std::vector<const JudgedCase*> cases_of(const MemoryNeed& need);

// "; it would do with 2.0 MiB more"; empty if unknown.
std::string in_words(const MemoryNeed& need);

}  // namespace lockstep
