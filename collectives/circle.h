// Some ranks of a communicator in a circle: all of them, or a row or a column of a grid.
#pragma once

#include "collectives/communicator.h"

namespace lockstep {

// Ranks first, first + stride, ...; `rank` is this rank's place among the `size` of them.
struct Circle {
  int rank = 0, size = 1;
  int first = 0, stride = 1;

  int at(int place) const { return first + (place % size + size) % size * stride; }
  int right() const { return at(rank + 1); }
  int left() const { return at(rank - 1); }
};

inline Circle whole_circle(const Communicator& comm) {
  return {.rank = comm.rank(), .size = comm.size()};
}

// Ranks numbered row by row: this rank's row, and its column.
struct Grid {
  int rows, columns;

  Circle row(int rank) const {
    return {.rank = rank % columns, .size = columns, .first = rank / columns * columns};
  }
  Circle column(int rank) const {
    return {.rank = rank / columns, .size = rows, .first = rank % columns, .stride = columns};
  }
};

}  // namespace lockstep
