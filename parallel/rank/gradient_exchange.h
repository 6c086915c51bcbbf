// How replicas exchange gradients: a rank encodes its own, a collective sums them, and the rank
// decodes the sums that it needs. Encoded gradients are rounded to the plan's --reduce-dtype, or are
// the gradients themselves if that is their type.
#pragma once

#include <functional>

#include "collectives/communicator.h"
#include "parallel/plan/plan.h"

namespace lockstep {

class GradientExchange {
 public:
  // Among `copies` ranks, for at most `most` gradients at a time, of the type and on the device of
  // `like`. `comm`, which must outlive it, records its memory.
  GradientExchange(const Plan& plan, int copies, Communicator& comm, Slice like, Count most);

  // Calls collective() with the encoded gradients, whose elements it sums over the ranks. Then the
  // part that summed() cuts out of a slice holds the decoded sums.
  void run(Slice gradients, const std::function<void(Slice encoded)>& collective,
           const std::function<Slice(Slice all)>& summed);
  // The same if all of them are summed.
  void run(Slice gradients, const std::function<void(Slice encoded)>& collective) {
    run(gradients, collective, [](Slice all) { return all; });
  }

  // The closed forms: bytes of an element while it travels, as a number and in a formula, and of the
  // memory for at most `most` of them.
  static Count element_bytes(const Plan& plan);
  static std::string element_formula(const Plan& plan, int copies);
  static Count memory_bytes(const Plan& plan, int copies, Count most);

 private:
  DType type_;
  bool encodes_;
  Memory encoded_;
};

}  // namespace lockstep
