// Singular vectors of a matrix on a GPU: the host computes them, in f64, once in many steps.
#include "models/ops/singular_vectors.h"

#include <algorithm>
#include <vector>

#include "collectives/base/cuda/check.h"
#include "models/ops/cuda/cuda_backend.h"

namespace lockstep::cuda {
namespace {

// The elements of a dense slice in the host's memory.
template <typename T>
std::vector<T> on_host(Slice slice) {
  return std::vector<T>(static_cast<std::size_t>(slice.count));
}

void copy_and_wait(cudaStream_t stream, void* into, const void* from, Count bytes,
                   cudaMemcpyKind way) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(into, from, static_cast<std::size_t>(bytes), way, stream),
        "copy singular vectors");
  check(cudaStreamSynchronize(stream), "wait for the GPU");
}

template <typename T>
void singular_vectors_of(cudaStream_t stream, const Matrix& of, const Matrix& left,
                         const Matrix& right) {
  std::vector<T> matrix = on_host<T>(of.slice), of_rows = on_host<T>(left.slice),
                 of_columns = on_host<T>(right.slice);
  std::vector<double> scratch(static_cast<std::size_t>(singular_scratch(of.rows, of.columns)));
  copy_and_wait(stream, matrix.data(), of.slice.data, of.slice.bytes(), cudaMemcpyDeviceToHost);
  lockstep::singular_vectors(matrix.data(), of.stride, of.rows, of.columns,
                             std::max(left.columns, right.rows),
                             of_rows.empty() ? nullptr : of_rows.data(),
                             of_columns.empty() ? nullptr : of_columns.data(), scratch.data());
  copy_and_wait(stream, left.slice.data, of_rows.data(), left.slice.bytes(),
                cudaMemcpyHostToDevice);
  copy_and_wait(stream, right.slice.data, of_columns.data(), right.slice.bytes(),
                cudaMemcpyHostToDevice);
}

}  // namespace

void CudaBackend::singular_vectors(const Matrix& of, const Matrix& left, const Matrix& right,
                                   Slice) {
  if (of.slice.dtype == DType::f64)
    singular_vectors_of<double>(stream_(), of, left, right);
  else
    singular_vectors_of<float>(stream_(), of, left, right);
}

}  // namespace lockstep::cuda
