// AdamW over flat parameters. Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "models/backend.h"
#include "models/parameters.h"

namespace lockstep {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// Consecutive elements of the values that an AdamW updates, and its states for them.
struct AdamWGroup {
  Range range;  // among those values
  Slice values;
  Slice master;  // f32 copy of 16-bit values, which takes the steps; empty for other values
  Slice first_moment, second_moment;
};

// The access to groups: `read` changes nothing; `change` may change everything; `step` may also
// change everything, but ignores values that have a master.
enum class StateAccess : std::uint8_t { read, change, step };

// Where states lie. Only one group need be in memory at a time.
class AdamWStorage {
 public:
  virtual ~AdamWStorage() = default;
  // Calls use() for each group in order. Its memory is valid during the call. The result of a
  // change or a step is stored, at the latest before the next access to the group. States begin as
  // zero.
  virtual void visit(StateAccess access, const std::function<void(const AdamWGroup&)>& use) = 0;
};

class AdamW {
 public:
  // For the elements `values`, which begin at `first` in a model's flat buffer. The range may begin
  // and end inside a parameter. `list` must outlive this. Keeps two moments of the values' type,
  // charged as optimizer. For 16-bit values the moments are f32, and an f32 copy of the values
  // takes the steps.
  AdamW(std::span<const Parameter> list, Count first, Slice values, Slice gradients,
        const AdamWOptions& options, Backend& backend, Ledger& ledger);
  // For all parameters.
  AdamW(Parameters& parameters, const AdamWOptions& options, Backend& backend, Ledger& ledger)
      : AdamW(parameters.list(), 0, parameters.values(), parameters.gradients(), options, backend,
              ledger) {}
  // With states, and maybe values, in `storage`.
  AdamW(std::span<const Parameter> list, Count first, Slice gradients, const AdamWOptions& options,
        Backend& backend, std::unique_ptr<AdamWStorage> storage);

  // One step with gradients times `gradient_scale` (the clipping factor). Matrices decay, vectors do
  // not.
  void step(double learning_rate, double gradient_scale = 1.0);

  // Reads or changes the state, group by group in order, wherever it lies. Call it after the weights
  // are loaded: masters begin as copies of them.
  void visit(StateAccess access, const std::function<void(const AdamWGroup&)>& use);
  // The flat buffer that contains the range it updates.
  std::span<const Parameter> list() const { return list_; }
  Range range() const { return {first_, gradients_.count}; }
  // Steps taken so far, on which the moments' bias corrections depend.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  std::span<const Parameter> list_;
  Count first_;
  Slice gradients_;
  AdamWOptions options_;
  Backend& backend_;
  std::unique_ptr<AdamWStorage> storage_;
  bool has_masters_ = false;  // masters were copied from the values
  std::int64_t steps_ = 0;
};

// Bytes that AdamW keeps per parameter of that type.
Count optimizer_bytes(DType dtype);

}  // namespace lockstep
