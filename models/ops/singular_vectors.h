// The first singular vectors of a matrix m x n, on the host and in f64. The vectors do not depend on the
// number of threads: where a singular value is single, they depend on the matrix alone.
//
//   the smaller side k = min(m, n): A = Q R by Householder reflections, A being the matrix or its
//   transpose with k columns; then rotations of pairs of R's rows until all are orthogonal. Their
//   norms are the singular values, the rows themselves the vectors of that side.
//   the larger side: A v / sigma, made orthogonal to those before, as rounding has turned the last ones
//
//   operations   2 (m n k), then 6 k^3 for each of some 6 to 10 rounds of all pairs
//   scratch      m n + k k numbers
//
// Hestenes, "Inversion of matrices by biorthogonalization and related results", 1958; Drmac and
// Veselic, "New fast and accurate Jacobi SVD algorithm", 2008.
#pragma once

#include "collectives/base/slice.h"

namespace lockstep {

// Numbers of scratch that singular_vectors() needs.
Count singular_scratch(Count rows, Count columns);

// The vectors of of[rows, columns], whose rows are `stride` apart: left[rows, rank] and right[rank, columns];
// one of the two may be null. Sorted by singular value; the largest component of the smaller side's vector is
// positive (the first of several that differ by less than a thousandth). Vectors of singular values that are
// rounding alone, below max(m, n) epsilon of T times the largest one, are zeros: so are all those of a matrix
// of zeros. A matrix with an element that is not finite has vectors of NaN. `rank` is at most min(m, n).
template <typename T>
void singular_vectors(const T* of, Count stride, Count rows, Count columns, Count rank, T* left,
                      T* right, double* scratch);

}  // namespace lockstep
