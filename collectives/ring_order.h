// The order of some ranks on a ring: all ranks of a communicator, or a row or column of a grid.
#pragma once

#include "collectives/communicator.h"

namespace lockstep {

// Ranks first, first + stride, ...; `rank` is this rank's index among the `size` of them.
struct RingOrder {
  int rank = 0, size = 1;
  int first = 0, stride = 1;

  int at(int place) const { return first + (place % size + size) % size * stride; }
  int right() const { return at(rank + 1); }
  int left() const { return at(rank - 1); }
};

inline RingOrder whole_ring(const Communicator& comm) {
  return {.rank = comm.rank(), .size = comm.size()};
}

// Ranks numbered row by row. Gives a rank's row and column as rings.
struct Grid {
  int rows, columns;

  RingOrder row(int rank) const {
    return {.rank = rank % columns, .size = columns, .first = rank / columns * columns};
  }
  RingOrder column(int rank) const {
    return {.rank = rank / columns, .size = rows, .first = rank % columns, .stride = columns};
  }
};

}  // namespace lockstep
