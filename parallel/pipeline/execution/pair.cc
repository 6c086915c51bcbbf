// A forward and a backward pass that take turns while rows travel to experts.
#include <omp.h>

#include <optional>

#include "parallel/pipeline/execution/executor.h"

namespace lockstep {

void Executor::take_turns(const Action& forward_pass, const Action& backward_pass) {
  std::vector<std::vector<Interval>>& passes = runs_.back().passes;
  const std::size_t first = passes.size();
  passes.resize(first + 2);
  std::optional<Trace::Span> span;
  ThreadClock::Moment begin;
  const auto listen = [&](int work, bool begins) {
    const Action& action = work == 0 ? backward_pass : forward_pass;
    if (begins) {
      span.emplace(context_.trace, 0, text_of(action), category_of(action.pass));
      begin = waiting_.clock().now();
      return;
    }
    compute_clock_.fall_behind();
    passes[first + (work == 0 ? 1 : 0)].emplace_back(begin, waiting_.clock().now());
    span.reset();
  };
  // OpenMP keeps the number of threads for each thread that starts work.
  const int threads = omp_get_max_threads();
  in_pair_ = true;
  turns_->take([&] { backward(backward_pass); },
               [&] {
                 omp_set_num_threads(threads);
                 forward(forward_pass);
               },
               listen);
  in_pair_ = false;
}

}  // namespace lockstep
