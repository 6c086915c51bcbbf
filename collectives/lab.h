// The code of a lab as an algorithm next to ours, called "lab". The closed forms are those of the
// algorithm that the lab asks for, so every check also applies to it.
#pragma once

#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// Null: there is none. Set before the tables of algorithms are first used.
struct LabCollectives {
  void (*reduce_scatter)(Communicator&, Slice, ReduceOp) = nullptr;
  void (*all_gather)(Communicator&, Slice) = nullptr;
  void (*all_reduce)(Communicator&, Slice, ReduceOp) = nullptr;
  void (*all_to_all)(Communicator&, Slice out, Slice in) = nullptr;
};
inline LabCollectives& lab_collectives() {
  static LabCollectives collectives;
  return collectives;
}

// Returns the table and, if `run` exists, an entry for it with the closed forms of `like`. `auto`
// never chooses it.
template <typename Entry>
std::vector<Entry> with_lab(std::vector<Entry> table, Entry like, decltype(Entry::run) run) {
  if (!run) return table;
  like.name = "lab";
  like.run = run;
  like.run_out_of_place = nullptr;
  like.ranks_are_equal = false;
  like.is_baseline = true;
  table.push_back(like);
  return table;
}

}  // namespace lockstep
