#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "parallel/pipeline/program/program.h"

namespace lockstep {
namespace {

// The cells of one rank. Waits for sends are added where the sends are known to have ended.
class Row {
 public:
  void add(const Step& step) {
    cells_.push_back(text_of(step));
    if (step.kind == Step::Kind::send) pending_.push_back(step.action);
    if (step.action.pass == Pass::reduce_gradients)
      cells_.push_back(fmt::format("{}WAIT_REDUCE_GRAD", step.action.stage));
    if (step.kind == Step::Kind::compute) end_sends_before(step.action);
  }
  void add_block(const Step& first, const Step& second) {
    cells_.push_back(fmt::format("({};{})OVERLAP_F_B", text_of(first), text_of(second)));
    end_sends_before(first.action);
    end_sends_before(second.action);
  }
  std::string text() && {
    for (const Action& send : pending_) cells_.push_back(wait_for(send));
    return fmt::format("{}\n", fmt::join(cells_, ","));
  }

 private:
  static std::string wait_for(const Action& send) {
    return fmt::format("{}WAIT_SEND_{}{}", send.stage, static_cast<char>(send.pass),
                       send.micro_batch);
  }
  void end_sends_before(const Action& action) {
    if (action.pass == Pass::forward || !has_output(action.pass)) return;
    const auto sent = std::ranges::find(
        pending_, Action{.stage = action.stage, .micro_batch = action.micro_batch});
    if (sent == pending_.end()) return;
    cells_.push_back(wait_for(*sent));
    pending_.erase(sent);
  }

  std::vector<std::string> cells_;
  std::vector<Action> pending_;  // sends, in their order
};

}  // namespace

std::string text_of(const Step& step) {
  const Action& a = step.action;
  if (!step.is_message()) return text_of(a);
  return fmt::format("{}{}_{}{}", a.stage, step.kind == Step::Kind::send ? "SEND" : "RECV",
                     static_cast<char>(a.pass), a.micro_batch);
}

std::string csv_of(const Program& program) {
  std::string text;
  for (const std::vector<Step>& steps : program.by_rank) {
    Row row;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].action.with_next) {
        row.add_block(steps[i], steps[i + 1]);
        ++i;
      } else {
        row.add(steps[i]);
      }
    }
    text += std::move(row).text();
  }
  return text;
}

}  // namespace lockstep
