// The experts of a layer, each a small mlp of the rows that a router sends to it. Rows lie by expert,
// then in the order of the tokens, so that an expert sums its gradients in the same order wherever it
// is. Here a rank has all experts; parallel/expert divides them between ranks.
//
// n tokens of this rank, K experts for each, f: hidden columns of an expert on this rank.
#pragma once

#include <string>
#include <vector>

#include "models/data/rows.h"
#include "models/gpt_config.h"
#include "models/layers/layer_stash.h"
#include "models/layers/linear.h"
#include "models/layers/meanwhile.h"
#include "models/routing.h"

namespace lockstep {

// Which experts of a layer a rank has, and which hidden columns of each.
struct ExpertPart {
  Range experts, hidden;
};

// An mlp of rows that are there already.
struct Expert {
  Linear expand, contract;

  // Registers name + c_fc.* and c_proj.*, all of it or, if ranks split it, these hidden columns.
  Expert(Parameters& parameters, const std::string& name, Count width, Range hidden, bool is_split);
};

class Experts {
 public:
  // Registers this part of them: their names have their numbers among all.
  Experts(Parameters& parameters, const std::string& name, const GptConfig& config,
          const ExpertPart& part);
  virtual ~Experts() = default;

  // Of tokens: out[n, C] = base + what the chosen experts make of x[n, C], times the router's weights.
  // base may be empty; out may be base. `meanwhile` runs when x is not needed anymore, before base is
  // read.
  virtual void mix(Backend& backend, Slice out, Slice base, Slice x, LayerStash& kept,
                   Routing& routing, const Rows& rows, Ledger& ledger,
                   const Meanwhile& meanwhile) const;
  // dx[n, C] = base + the gradient of x, given dout[n, C]. products[n, K]: see Router::backward().
  virtual void mix_backward_input(Backend& backend, Slice dx, Slice base, Slice products,
                                  Slice dout, const LayerStash& kept, LayerStash& gradients,
                                  const Routing& routing, Ledger& ledger,
                                  const Meanwhile& meanwhile) const;
  // Adds to the gradients of the weights, after mix_backward_input().
  virtual void mix_backward_weight(Backend& backend, const LayerStash& kept,
                                   const LayerStash& gradients, const Routing& routing) const;

  // What the three above do between gathering rows of tokens and adding them up by weight.
  //
  // Memory for the rows of the routed tokens, as many as there may be, for the caller to fill before
  // forward().
  virtual Slice input(LayerStash& kept, const Routing& routing, Ledger& ledger) const;
  // made[rows, C], of the rows that were routed.
  virtual void forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing,
                       const Rows& tokens, Ledger& ledger) const;
  // dinput[rows, C], given dmade[rows, C].
  virtual void backward_input(Backend& backend, Slice dinput, Slice dmade, const LayerStash& kept,
                              LayerStash& gradients, const Routing& routing, Ledger& ledger) const;
  // Adds to the gradients of the weights, after backward_input().
  virtual void backward_weight(Backend& backend, Slice dmade, const LayerStash& kept,
                               const LayerStash& gradients, const Routing& routing) const;

  const Parameters& parameters() const { return parameters_; }
  int first_parameter() const { return experts_.front().expand.weight(); }
  int last_parameter() const { return experts_.back().contract.bias(); }

 protected:
  // Returns what is left to run after forward() or backward_input(): nothing, if they run it while rows
  // travel.
  virtual Meanwhile begin_meanwhile(const Meanwhile& meanwhile) const { return meanwhile; }

  // The tensors of so many rows at most.
  struct Activations {
    Tensor input, hidden, activated;  // [rows, C], [rows, f], [rows, f]
  };
  struct Gradients {
    Tensor hidden;  // [rows, f]
  };
  using Counts = std::span<const Count>;  // of each expert's rows, which follow each other
  // Neighbouring rows of an expert, by its number among this rank's.
  struct RowsOfExpert {
    std::size_t expert;
    Count first, count;
  };

  Slice make(Tensor& tensor, Count rows, Count columns, Ledger& ledger) const {
    ensure(tensor, {rows, columns}, parameters_.dtype(), ledger, MemoryUse::activations);
    return tensor.slice();
  }
  // The same passes of the experts that this rank has, with memory for `most` rows. If it has only some
  // hidden columns of each, they make a part of the sum, without the biases of c_proj.
  void own_forward(Backend& backend, Slice made, Activations& a, Counts counts, Count most,
                   Ledger& ledger) const;
  void own_backward_input(Backend& backend, Slice dinput, Slice dmade, const Activations& a,
                          Gradients& d, Counts counts, Count most, Ledger& ledger) const;
  void own_backward_weight(Backend& backend, Slice dmade, const Activations& a, const Gradients& d,
                           Counts counts) const;
  // The same as own_backward_input(), if each row of what experts make is multiplied by its weight
  // afterwards. products[rows] = <dmade, the row without biases of c_proj>; then dmade is multiplied.
  void own_backward_weighted(Backend& backend, Slice products, Slice dinput, Slice dmade,
                             std::span<const double> weights, const Activations& a, Gradients& d,
                             Counts counts, Count most, Ledger& ledger) const;
  // table[e, C] = the biases of c_proj
  void copy_biases(Backend& backend, Slice table) const;
  // For those biases: adds them to rows whose sums are complete; adds the rows of dmade to their
  // gradients.
  void add_biases(Backend& backend, Slice made, std::span<const RowsOfExpert> all) const;
  void backward_biases(Backend& backend, Slice dmade, std::span<const RowsOfExpert> all) const;

  const ExpertConfig& config() const { return config_; }
  // Rows of these tokens, at most.
  Count most_rows(const Routing& routing) const {
    return config_.most_rows(std::ssize(routing.experts) / config_.per_token);
  }
  Count width() const { return width_; }
  // Whether this rank has only some hidden columns.
  bool are_split() const { return hidden_ < config_.width; }

 private:
  struct Mixed {
    Tensor made;  // [rows, C], the experts' outputs
    LayerStash rows;
  };
  struct GradientsOfMixed {
    Tensor made, gathered;  // [rows, C]
    LayerStash rows;
  };
  // Calls run(expert, rows, count), where rows(slice) are its rows of a tensor.
  template <typename Run>
  void for_each_expert(Counts counts, Run run) const;

  Parameters& parameters_;
  Count width_, hidden_;  // hidden_: this rank's columns
  ExpertConfig config_;
  std::vector<Expert> experts_;
};

}  // namespace lockstep
