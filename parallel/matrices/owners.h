// Which rank owns a matrix for a step that needs all its elements. Ranks that hold parts of the same
// matrices, because tp cuts them or replicas shard them, take them in rounds: the most work first, one
// matrix for each rank; unit by unit if the optimizer steps in backward. Before it is stepped, each rank sends its elements' directions to the owner, and
// gets them back changed.
//
//   bytes sent per rank and step   2 (G-1)/G * Psi_hidden/G * beta     on average: G such ranks, which
//                                  together hold Psi_hidden elements of beta bytes in such matrices
//   messages                       2 (G-1) * rounds                    rounds of up to G matrices
//   bytes held                     the directions of a round's pieces, those of an owned matrix, and
//                                  what changes it: see models/optimizers/whole_matrices.h
//
// States of elements stay where the elements are. Those of whole matrices are the owner's: the memory of
// the optimizer then depends on owners, but no checkpoint does, which holds them whole. Liu et al., "Muon is scalable for LLM training", 2025, gather every matrix on every rank
// instead: (G-1)/G * Psi_hidden * beta, and each rank computes all steps.
#pragma once

#include <vector>

#include "models/optimizers/whole_matrices.h"
#include "parallel/checkpoint/box.h"
#include "parallel/plan/environment.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

inline constexpr const char* matrices_label = "matrices";

// Who owns the matrices of a set of a rank's parameters.
class MatrixOwners {
 public:
  MatrixOwners(const Plan& plan, int rank, ParameterSet set);

  // The ranks that have parts of these matrices, and this rank's place among them. One rank has all of
  // them whole.
  const Mesh::Group& ranks() const { return ranks_; }
  std::size_t place() const { return place_; }
  // Of this rank. The pieces of a round lie owner by owner.
  const WholeMatrices::Rounds& rounds() const { return rounds_; }

  // How many elements of a round this rank sends to each owner; and of its own matrix, each rank.
  struct Counts {
    std::vector<Count> to_owners, of_own;
  };
  Counts counts(std::size_t round) const;
  // Where the elements that a rank holds of this rank's own matrix lie in it. Places count from the
  // first of them.
  std::vector<PlacedBox> boxes_of_own(std::size_t round, std::size_t holder) const;
  // The columns of the whole matrix.
  Count columns_of_own(std::size_t round) const;
  // The most elements of an own matrix that arrive in a round; several ranks may hold the same.
  Count most_received() const;
  Traffic traffic() const;

 private:
  struct Holder {
    std::vector<Parameter> list;
    std::vector<Range> held;  // elements of each of its parts of parameters
  };
  void find_holders(const Plan& plan, int rank, ParameterSet set);
  // Deals out the matrices among these places of the list.
  void deal(const OptimizerSettings& settings, Range places);

  Mesh::Group ranks_;
  std::size_t place_ = 0;
  std::vector<Holder> holders_;
  WholeBoxes whole_;
  std::vector<std::vector<std::size_t>> owned_;  // by round: the matrices, owner by owner
  WholeMatrices::Rounds rounds_;
};

// Whether steps of the plan's optimizer need some of these parameters whole.
bool has_whole_matrices(const Plan& plan, const Parameters& parameters);

// Null if this rank has all such matrices of its parameters whole. Every rank of `world` calls it for the
// set. All arguments but `parameters` must outlive it.
std::unique_ptr<MatrixExchange> make_matrix_exchange(const Plan& plan, Communicator& world,
                                                     const Parameters& parameters, ParameterSet set,
                                                     Backend& backend, Ledger& ledger);

// What a rank sends and holds for them.
Terms matrix_terms(const Plan& plan, int rank, const Parameters& parameters, ParameterSet set,
                   bool computes_on_host);

}  // namespace lockstep
