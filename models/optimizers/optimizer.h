// What all optimizers share: the elements that they step, their states in memory or elsewhere, and
// f32 masters of 16-bit values. A derived class adds its rule; optimizers.h lists them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/backend.h"
#include "models/parameters.h"

namespace lockstep {

// The subspaces of GaLore: see galore.h. They decide the shapes of its states.
struct ProjectionSettings {
  int rank = 16;
  std::string projection = "std";
  bool operator==(const ProjectionSettings&) const = default;
};

// An optimizer by name, and the options of all of them.
struct OptimizerSettings {
  std::string name = "adamw";
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0.9;
  double muon_momentum = 0.95;
  double muon_rate = 20;  // the rate of hidden matrices, in rates of the rest
  ProjectionSettings galore = {};
  int galore_period = 200;  // steps with one subspace
  double galore_scale = 0.25;
};

// Consecutive elements with the same states.
struct StateRange {
  Range range;
  std::vector<std::string_view> names;  // of the states
};

// Consecutive elements of the values that an optimizer steps, and its states for them.
struct StateGroup {
  Range range;  // among those values
  Slice values;
  Slice master;               // f32 copy of 16-bit values, which takes the steps; else empty
  std::vector<Slice> states;  // in the order of state_ranges()
};

// The access to groups: `read` changes nothing; `change` may change everything; `step` may also
// change everything, but ignores values that have a master.
enum class StateAccess : std::uint8_t { read, change, step };

// Where states lie. Only one group need be in memory at a time.
class StateStorage {
 public:
  virtual ~StateStorage() = default;
  // Calls use() for each group in order, or for those that have elements of `within`. Its memory is
  // valid during the call. The result of a change or a step is stored, at the latest before the next
  // access to the group. States begin as zero.
  virtual void visit(StateAccess access, Range within,
                     const std::function<void(const StateGroup&)>& use) = 0;
};

// All states of these values in memory, a group for each range, charged as optimizer. States have the
// values' type. For 16-bit values they are f32, and an f32 copy of the values takes the steps.
std::unique_ptr<StateStorage> resident_states(Slice values, std::vector<StateRange> ranges,
                                              Ledger& ledger);

class Optimizer {
 public:
  // For as many elements as there are gradients. They begin at `first` in a model's flat buffer, and
  // may begin and end inside a parameter. `list` must outlive this.
  Optimizer(std::span<const Parameter> list, Count first, Slice gradients,
            const OptimizerSettings& options, Backend& backend,
            std::unique_ptr<StateStorage> storage);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  // From now on its gradients, as many as before, are these.
  void take_gradients(Slice gradients) { gradients_ = gradients; }

  // One step with gradients times `gradient_scale` (the clipping factor). Matrices decay, vectors do
  // not. Hidden matrices that the rule needs whole have been stepped before: see whole_matrices.h.
  virtual void step(double learning_rate, double gradient_scale) = 0;

  // Such a matrix, by its place in the list, takes a step in three parts. First `direction` gets the
  // direction of this rank's elements, and states change. Then a rank that has the directions of all
  // elements changes them together. At last this rank's elements step along theirs.
  virtual bool needs_whole(const Parameter&) const { return false; }
  virtual void begin_matrix(std::size_t, double /*gradient_scale*/, Slice /*direction*/) {}
  virtual void end_matrix(std::size_t, double /*learning_rate*/, Slice /*direction*/) {}

  // Reads or changes the state, group by group in order, wherever it lies. Call it after the weights
  // are loaded: masters begin as copies of them.
  void visit(StateAccess access, const std::function<void(const StateGroup&)>& use);
  // The flat buffer that contains the range it steps.
  std::span<const Parameter> list() const { return list_; }
  Range range() const { return {first_, gradients_.count}; }
  // How many elements of a parameter of the list that range has.
  Count own_elements(std::size_t number) const;
  // Steps taken so far.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 protected:
  // This optimizer's elements of one parameter, or some of them.
  struct Part {
    const Parameter& parameter;
    Slice values, gradients;  // the values that take the step: masters, if there are any
    std::vector<Slice> states;
  };
  // Counts a step, and calls use() for all parts.
  void step_parts(const std::function<void(const Part&)>& use);
  // Calls use() for its elements of one parameter, if it has any.
  void step_part(std::size_t number, const std::function<void(const Part&)>& use);

  std::span<const Parameter> list_;
  Count first_;
  Slice gradients_;
  const OptimizerSettings options_;
  Backend& backend_;
  std::int64_t steps_ = 0;

 private:
  void visit_within(StateAccess access, Range within,
                    const std::function<void(const StateGroup&)>& use);
  void visit_parts(Range within, const std::function<void(const Part&)>& use);

  std::unique_ptr<StateStorage> storage_;
  bool has_masters_ = false;  // masters were copied from the values
};

}  // namespace lockstep
