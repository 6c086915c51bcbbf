// A pipeline schedule is data: for every rank the actions it takes, in their order. The same lists
// are checked, simulated, drawn, written, read and run.
#pragma once

#include <compare>
#include <string>
#include <vector>

namespace lockstep {

// What a stage does with a micro-batch. The backward pass comes in one piece or in two: the
// gradient of the input, which the stage before waits for, and the gradients of the weights, which
// nobody waits for. Letters as PyTorch writes them.
enum class Pass : char {
  forward = 'F',
  backward = 'B',
  input_gradient = 'I',
  weight_gradient = 'W',
};

struct Action {
  int stage = 0;
  Pass pass = Pass::forward;
  int micro_batch = 0;
  // One block with the next action: both begin together and are done when the block is.
  bool with_next = false;

  auto operator<=>(const Action&) const = default;
};
// PyTorch's action text: "2F0" is the forward pass of stage 2 for micro-batch 0.
std::string text_of(const Action& action);

struct Schedule {
  int stages = 0, micro_batches = 0;
  std::vector<std::vector<Action>> by_rank;

  int ranks() const { return static_cast<int>(by_rank.size()); }
  // The rank of every stage; -1 for a stage without actions.
  std::vector<int> rank_of_stage() const;
  bool operator==(const Schedule&) const = default;
};

// What a schedule is made for. Every rank has `virtual_stages` stages.
struct PipelineShape {
  int ranks = 1, micro_batches = 1, virtual_stages = 1;
  int group =
      0;  // micro-batches that an interleaved schedule takes through a stage in turn; 0: ranks

  int stages() const { return ranks * virtual_stages; }
};

// Writes down the actions of one rank: keeps count of the micro-batches that each of its stages has
// taken in each pass.
class RankActions {
 public:
  RankActions(std::vector<Action>& actions, int stages)
      : actions_(actions), taken_(static_cast<std::size_t>(stages)) {}

  void forward(int stage) { add(stage, Pass::forward); }
  void backward(int stage) { add(stage, Pass::backward); }
  void input_gradient(int stage) { add(stage, Pass::input_gradient); }
  void weight_gradient(int stage) { add(stage, Pass::weight_gradient); }
  void with_next() { actions_.back().with_next = true; }

  int forwards(int stage) const { return taken_[static_cast<std::size_t>(stage)].forward; }
  // Input gradients and whole backward passes.
  int backwards(int stage) const { return taken_[static_cast<std::size_t>(stage)].backward; }
  int weight_gradients(int stage) const { return taken_[static_cast<std::size_t>(stage)].weight; }

 private:
  struct Taken {
    int forward = 0, backward = 0, weight = 0;
  };
  void add(int stage, Pass pass);

  std::vector<Action>& actions_;
  std::vector<Taken> taken_;  // by stage
};

}  // namespace lockstep
