// The experts of a layer, each a small mlp of the rows that a router sends to it. Rows lie by expert,
// then in the order of the tokens, so that an expert sums its gradients in the same order wherever it
// is. Here a rank has all experts; parallel/expert divides them between ranks.
//
// N tokens, K experts for each, f: hidden columns of an expert.
#pragma once

#include <string>
#include <vector>

#include "models/data/rows.h"
#include "models/gpt_config.h"
#include "models/layers/layer_stash.h"
#include "models/layers/linear.h"
#include "models/routing.h"

namespace lockstep {

// An mlp of rows that are there already.
struct Expert {
  Linear expand, contract;

  // Registers name + c_fc.* and c_proj.*.
  Expert(Parameters& parameters, const std::string& name, Count width, Count hidden)
      : expand(parameters, name + "c_fc", width, hidden, Initial::normal),
        contract(parameters, name + "c_proj", hidden, width, Initial::branch_end) {}
  void forward(Backend& backend, Slice out, Slice base, Slice hidden, Slice activated, Slice x,
               Count rows) const {
    expand.forward_gelu(backend, hidden, activated, x, rows);
    contract.forward(backend, out, base, activated, rows);
  }
  void backward_input(Backend& backend, Slice dx, Slice dhidden, Slice dout, Slice hidden,
                      Count rows) const {
    contract.backward_gelu(backend, dhidden, dout, hidden, rows);
    expand.backward_input(backend, dx, dhidden, rows);
  }
  void backward_weight(Backend& backend, Slice dout, Slice dhidden, Slice activated, Slice x,
                       Count rows) const;
  // Tells the backend that all gradients are complete without a row of x.
  void add_no_rows(Backend& backend, Slice x) const;
};

class Experts {
 public:
  // Registers the experts of a range: their names have their numbers among all.
  Experts(Parameters& parameters, const std::string& name, const GptConfig& config, Range which);
  virtual ~Experts() = default;

  // Memory for the rows of these tokens, as many as there may be, for the caller to fill before
  // forward().
  virtual Slice input(LayerStash& kept, const Rows& tokens, Ledger& ledger) const;
  // made[rows, C], of the rows that were routed.
  virtual void forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing,
                       const Rows& tokens, Ledger& ledger) const;
  // dinput[rows, C], given dmade[rows, C].
  virtual void backward_input(Backend& backend, Slice dinput, Slice dmade, const LayerStash& kept,
                              LayerStash& gradients, const Routing& routing, const Rows& tokens,
                              Ledger& ledger) const;
  // Adds to the gradients of the weights, after backward_input().
  virtual void backward_weight(Backend& backend, Slice dmade, const LayerStash& kept,
                               const LayerStash& gradients, const Routing& routing) const;

  const Parameters& parameters() const { return parameters_; }
  int first_parameter() const { return experts_.front().expand.weight(); }
  int last_parameter() const { return experts_.back().contract.bias(); }

 protected:
  // The tensors of so many rows at most.
  struct Activations {
    Tensor input, hidden, activated;  // [rows, C], [rows, f], [rows, f]
  };
  struct Gradients {
    Tensor hidden;  // [rows, f]
  };
  using Counts = std::span<const Count>;  // of each expert's rows, which follow each other

  Slice make(Tensor& tensor, Count rows, Count columns, Ledger& ledger) const {
    ensure(tensor, {rows, columns}, parameters_.dtype(), ledger, MemoryUse::activations);
    return tensor.slice();
  }
  // The same passes of the experts that this rank has, with memory for `most` rows.
  void own_forward(Backend& backend, Slice made, Activations& a, Counts counts, Count most,
                   Ledger& ledger) const;
  void own_backward_input(Backend& backend, Slice dinput, Slice dmade, const Activations& a,
                          Gradients& d, Counts counts, Count most, Ledger& ledger) const;
  void own_backward_weight(Backend& backend, Slice dmade, const Activations& a, const Gradients& d,
                           Counts counts) const;

  const ExpertConfig& config() const { return config_; }
  Count width() const { return width_; }

 private:
  // Calls run(expert, rows, count), where rows(slice) are its rows of a tensor.
  template <typename Run>
  void for_each_expert(Counts counts, Run run) const;

  Parameters& parameters_;
  Count width_;
  ExpertConfig config_;
  std::vector<Expert> experts_;
};

}  // namespace lockstep
