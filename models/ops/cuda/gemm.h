// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <optional>

#include "models/backend.h"

namespace lockstep::cuda {

// What a product also does with its result before writing it.
struct Epilogue {
  enum class Kind : std::uint8_t { none, bias, bias_gelu, gelu_backward };
  Kind kind = Kind::none;
  Slice bias;
  // bias_gelu writes the input of GELU here; gelu_backward reads it. Has the result's shape.
  Slice hidden;
};

// Finds the fastest algorithm for a shape once, and keeps it. For one thread.
//
// cuBLASLt is several times as fast if rows in memory are whole multiples of 16 bytes. If rows are
// not, but are padded to such multiples, the last few columns are a separate product.
class Gemm {
 public:
  // `tf32`: f32 factors are rounded to a mantissa of 10 bits.
  explicit Gemm(bool tf32) : tf32_(tf32) {}

  static constexpr Count workspace_bytes = 32 << 20;

  // c = epilogue(a b + beta base), with f32 sums for 16-bit types. `base` has c's shape, is read if
  // beta is not 0, and may be c. Returns false, and does nothing, if cuBLASLt has no such epilogue
  // for this type and alignment. Throws Error if a product fails.
  bool run(cudaStream_t stream, const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
           double beta, const Epilogue& epilogue, void* workspace);

 private:
  using Key = std::array<Count, 20>;

  bool run_whole(cudaStream_t stream, const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
                 double beta, const Epilogue& epilogue, void* workspace);

  bool tf32_;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> chosen_;  // empty: there is none
};

}  // namespace lockstep::cuda
