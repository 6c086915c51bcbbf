// A copy of what a rank writes to a checkpoint, so that training continues while it is written, and
// the closed form of its memory: all states of each element that the rank writes.
#pragma once

#include "parallel/checkpoint/files.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

class StateCopy {
 public:
  // In the host's memory. Charges `ledger` unless the rank computes in a GPU's memory.
  StateCopy(const RankPart& part, Ledger& ledger);
  void write(FileWriter& writer) const;

 private:
  Slice slice(std::size_t tensor) const;

  StoredFile file_;
  std::vector<Count> begins_;  // of its tensors, in bytes
  Memory memory_;
};

// Whether the plan makes copies.
bool copies_states(const Plan& plan);
// Bytes of a copy of `elements` elements that have all states; 0 if the plan makes none. The formula, for
// `psi` elements, is that of a plan that makes one.
Count checkpoint_copy_bytes(const Plan& plan, Count elements);
std::string checkpoint_copy_formula(const Plan& plan, std::string_view psi);

// The memory of the copy of these parameters without states of matrices, for a rank that computes on the host. `units` are their
// units, if they are sharded; otherwise `stepped` are the ranges of the flat buffer that have an optimizer
// each.
Terms checkpoint_terms(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                       const std::vector<Range>& stepped, const RankUnits* units,
                       bool computes_on_host);

}  // namespace lockstep
