// cuBLASLt is column-major: to it, a row-major matrix is its transpose. So a product is requested as
// the product of the transposes in reverse order.
#include "models/ops/cuda/gemm.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "collectives/base/error.h"

namespace lockstep::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::lost_rank, std::string("cuBLASLt: ") + what + ": status " +
                                        std::to_string(static_cast<int>(status)));
}

// One per process. Thread-safe.
cublasLtHandle_t handle() {
  static const cublasLtHandle_t the_handle = [] {
    cublasLtHandle_t made = nullptr;
    check(cublasLtCreate(&made), "create a handle");
    return made;
  }();
  return the_handle;
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      throw Error(ErrorKind::bad_input, "a matrix product of " + std::string(name_of(dtype)));
  }
}

// A descriptor with an owner, created and destroyed by these functions.
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle made = nullptr;

  Owned() = default;
  ~Owned() {
    if (made) destroy(made);
  }
  Owned(const Owned&) = delete;
};

class Layout : public Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> {
 public:
  explicit Layout(const Matrix& m) {
    check(cublasLtMatrixLayoutCreate(&made, type_of(m.slice.dtype),
                                     static_cast<std::uint64_t>(m.columns),
                                     static_cast<std::uint64_t>(m.rows), m.stride),
          "describe a matrix");
  }
};

class Description : public Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> {
 public:
  Description(cublasComputeType_t compute, cudaDataType_t scale) {
    check(cublasLtMatmulDescCreate(&made, compute, scale), "describe a product");
  }
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(made, attribute, &value, sizeof value),
          "describe a product");
  }
};

class Preference : public Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> {
 public:
  Preference() { check(cublasLtMatmulPreferenceCreate(&made), "make a preference"); }
  template <typename T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
          "make a preference");
  }
};

// The largest power of two, up to 256, that divides the address.
std::uint32_t alignment_of(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(place & (~place + 1));
}

cublasLtEpilogue_t epilogue_of(Epilogue::Kind kind) {
  switch (kind) {
    case Epilogue::Kind::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::Kind::bias_gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::Kind::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::Kind::none:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// cuBLASLt's documented requirements on an epilogue's operands. Its GELU supports only 16-bit types.
bool may_have(const Epilogue& epilogue, const Matrix& c) {
  constexpr Count multiple = 8;
  constexpr std::uint32_t alignment = 16;
  if (epilogue.kind == Epilogue::Kind::none) return true;
  if (c.slice.dtype == DType::f64) return false;
  if (epilogue.kind == Epilogue::Kind::bias) return true;
  return c.slice.dtype != DType::f32 && c.columns % multiple == 0 && c.stride == c.columns &&
         alignment_of(epilogue.hidden.data) >= alignment;
}

// Columns or rows of a matrix, as they lie in memory.
Matrix columns_in_memory(const Matrix& x, Count first, Count count) {
  Matrix part = x.columns_from(first, count);
  part.transposed = x.transposed;
  return part;
}
Matrix rows_in_memory(const Matrix& x, Count first, Count count) {
  Matrix part = x.rows_from(first, count);
  part.transposed = x.transposed;
  return part;
}

// Returns how many columns are whole multiples of 16 bytes, if a separate product for the others is
// worthwhile; otherwise all.
Count whole_columns(const Matrix& x) {
  const Count multiple = 16 / element_bytes(x.slice.dtype), rest = x.columns % multiple;
  return x.stride % multiple == 0 && x.columns > multiple ? x.columns - rest : x.columns;
}

}  // namespace

bool Gemm::run(cudaStream_t stream, const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
               double beta, const Epilogue& epilogue, void* workspace) {
  const auto all = [&] { return run_whole(stream, a, b, c, base, beta, epilogue, workspace); };
  if (epilogue.kind != Epilogue::Kind::none) return all();
  const auto base_from = [&](Count first) {
    return base.data ? base.part(first, base.count - first) : base;
  };
  if (const Count whole = whole_columns(c); whole < c.columns) {
    const auto part = [&](Count first, Count count) {
      return run(
          stream, a,
          b.transposed ? rows_in_memory(b, first, count) : columns_in_memory(b, first, count),
          columns_in_memory(c, first, count), base_from(first), beta, epilogue, workspace);
    };
    return part(0, whole) && part(whole, c.columns - whole);
  }
  const Count whole = whole_columns(a);
  if (whole == a.columns) return all();
  if (a.transposed) {
    const auto part = [&](Count first, Count count) {
      return run(stream, columns_in_memory(a, first, count), b, rows_in_memory(c, first, count),
                 base_from(first * c.stride), beta, epilogue, workspace);
    };
    return part(0, whole) && part(whole, a.columns - whole);
  }
  // The parts are terms of the same sums. The last few terms are rounded before the others are
  // added; this must not happen to a base.
  if (beta != 0) return all();
  const auto terms = [&](Count first, Count count, Slice added_to, double factor) {
    return run(stream, columns_in_memory(a, first, count),
               b.transposed ? columns_in_memory(b, first, count) : rows_in_memory(b, first, count),
               c, added_to, factor, epilogue, workspace);
  };
  return terms(whole, a.columns - whole, {}, 0) && terms(0, whole, c.slice, 1);
}

bool Gemm::run_whole(cudaStream_t stream, const Matrix& a, const Matrix& b, const Matrix& c,
                     Slice base, double beta, const Epilogue& epilogue, void* workspace) {
  if (!may_have(epilogue, c)) return false;
  const bool is_f64 = c.slice.dtype == DType::f64;
  const cublasComputeType_t compute = is_f64  ? CUBLAS_COMPUTE_64F
                                      : tf32_ ? CUBLAS_COMPUTE_32F_FAST_TF32
                                              : CUBLAS_COMPUTE_32F;
  Description product(compute, is_f64 ? CUDA_R_64F : CUDA_R_32F);
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  product.set(CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(epilogue.kind));
  const bool has_bias =
      epilogue.kind == Epilogue::Kind::bias || epilogue.kind == Epilogue::Kind::bias_gelu;
  if (has_bias) product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias.data);
  if (epilogue.hidden.data) {
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.hidden.data);
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, c.stride);
  }
  const std::byte* const from = beta != 0 ? base.data : c.slice.data;
  const Layout left(b), right(a), result(c);
  const std::array alignments = {alignment_of(b.slice.data), alignment_of(a.slice.data),
                                 alignment_of(from), alignment_of(c.slice.data)};

  const Key key = {static_cast<Count>(a.slice.dtype),
                   static_cast<Count>(c.slice.dtype),
                   a.rows,
                   a.columns,
                   a.stride,
                   a.transposed,
                   b.rows,
                   b.columns,
                   b.stride,
                   b.transposed,
                   c.rows,
                   c.columns,
                   c.stride,
                   static_cast<Count>(epilogue.kind),
                   beta != 0,
                   alignments[0],
                   alignments[1],
                   alignments[2],
                   alignments[3],
                   has_bias ? alignment_of(epilogue.bias.data) : 0};
  auto found = chosen_.find(key);
  if (found == chosen_.end()) {
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                   static_cast<std::size_t>(workspace_bytes));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[3]);
    cublasLtMatmulHeuristicResult_t best{};
    int results = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), product.made, left.made, right.made, result.made,
                                       result.made, preference.made, 1, &best, &results);
    const bool has_one =
        status == CUBLAS_STATUS_SUCCESS && results > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    if (!has_one && epilogue.kind == Epilogue::Kind::none) check(status, "choose an algorithm");
    found = chosen_.emplace(key, has_one ? std::optional(best.algo) : std::nullopt).first;
  }
  if (!found->second) {
    require(epilogue.kind != Epilogue::Kind::none, "cuBLASLt has no algorithm for a product");
    return false;
  }
  const double one = 1;
  const float one_f = 1, beta_f = static_cast<float>(beta);
  const void* const factor = is_f64 ? static_cast<const void*>(&one) : &one_f;
  const void* const base_factor = is_f64 ? static_cast<const void*>(&beta) : &beta_f;
  check(
      cublasLtMatmul(handle(), product.made, factor, b.slice.data, left.made, a.slice.data,
                     right.made, base_factor, from, result.made, c.slice.data, result.made,
                     &*found->second, workspace, static_cast<std::size_t>(workspace_bytes), stream),
      "multiply");
  return true;
}

}  // namespace lockstep::cuda
