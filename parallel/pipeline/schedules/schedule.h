// A pipeline schedule is data: for every rank, its actions in order. The same lists are checked,
// simulated, drawn, written, read and run.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

// What a stage does. The backward pass comes in one piece or in two: the gradient of the input,
// which the previous stage waits for, and the gradients of the weights, which no stage waits for.
// These compute, each for one micro-batch. The collectives act on a whole stage, among its replicas
// or shards: unshard gathers its parameters, reshard frees the gathered copy, and reduce_gradients
// sums its gradients over all micro-batches.
enum class Pass : char {
  forward = 'F',
  backward = 'B',
  input_gradient = 'I',
  weight_gradient = 'W',
  unshard = 'U',
  reshard = 'R',
  reduce_gradients = 'G',
};
// As PyTorch writes it: "F", "UNSHARD", "REDUCE_GRAD".
std::string_view name_of(Pass pass);
// Whether it computes; collectives do not.
bool is_compute(Pass pass);
// Whether another stage waits for the result.
bool has_output(Pass pass);

struct Action {
  static constexpr int whole_stage = -1;

  int stage = 0;
  Pass pass = Pass::forward;
  int micro_batch = 0;  // whole_stage for a collective
  // One block with the next action: both begin together and are done when the block is.
  bool with_next = false;

  auto operator<=>(const Action&) const = default;
};
// PyTorch's action text: "2F0" is the forward pass of stage 2 for micro-batch 0, "2UNSHARD" gathers
// the parameters of stage 2.
std::string text_of(const Action& action);
// How many actions form the block that begins at `begin`; mostly 1.
std::size_t block_size(const std::vector<Action>& actions, std::size_t begin);

struct Schedule {
  int stages = 0, micro_batches = 0;
  std::vector<std::vector<Action>> by_rank;

  int ranks() const { return static_cast<int>(by_rank.size()); }
  // The rank of every stage; -1 for a stage without actions.
  std::vector<int> rank_of_stage() const;
  // Whether any rank has such an action.
  bool has(Pass pass) const;
  bool operator==(const Schedule&) const = default;
};

// The size of a pipeline. Every rank has `virtual_stages` stages.
struct PipelineShape {
  int ranks = 1, micro_batches = 1, virtual_stages = 1;
  // For interleaved schedules: consecutive micro-batches per stage; 0: the number of ranks.
  int group = 0;

  int stages() const { return ranks * virtual_stages; }
};

// Appends the actions of one rank. Counts the micro-batches of each stage and pass, so that an
// action takes the next one.
class RankActions {
 public:
  explicit RankActions(std::vector<Action>& actions) : actions_(actions) {}

  void forward(int stage) { add(stage, Pass::forward); }
  void backward(int stage) { add(stage, Pass::backward); }
  void input_gradient(int stage) { add(stage, Pass::input_gradient); }
  void weight_gradient(int stage) { add(stage, Pass::weight_gradient); }
  void with_next() { actions_.back().with_next = true; }

  int forwards(int stage) const { return taken(stage).forward; }
  // Input gradients and whole backward passes.
  int backwards(int stage) const { return taken(stage).backward; }
  int weight_gradients(int stage) const { return taken(stage).weight; }

 private:
  struct Taken {
    int forward = 0, backward = 0, weight = 0;
  };
  Taken taken(int stage) const;
  void add(int stage, Pass pass);

  std::vector<Action>& actions_;
  std::unordered_map<int, Taken> taken_;  // by stage: of all stages, a rank has few
};

}  // namespace lockstep
