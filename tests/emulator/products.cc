// Products as in cuBLASLt, with column-major matrices. Sums are in f32, for f64 in f64.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/emulator/streams.h"

struct EmulatedLayout {
  cudaDataType_t type;
  std::int64_t rows, columns, stride;
};

struct EmulatedProduct {
  bool transpose_a = false, transpose_b = false;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* hidden = nullptr;
  std::int64_t hidden_stride = 0;
};

struct EmulatedPreference {};

namespace {

double element(const void* from, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(from)[i];
    case CUDA_R_32F:
      return static_cast<double>(static_cast<const float*>(from)[i]);
    case CUDA_R_16F:
      return static_cast<double>(__half2float(static_cast<const __half*>(from)[i]));
    case CUDA_R_16BF:
      break;
  }
  return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]));
}

void put(void* into, cudaDataType_t type, std::int64_t i, double value) {
  const auto rounded = static_cast<float>(value);
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(into)[i] = value;
      return;
    case CUDA_R_32F:
      static_cast<float*>(into)[i] = rounded;
      return;
    case CUDA_R_16F:
      static_cast<__half*>(into)[i] = __float2half_rn(rounded);
      return;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(into)[i] = __float2bfloat16_rn(rounded);
  }
}

struct Gelu {
  double value, derivative;

  explicit Gelu(double x) {
    const double a = std::sqrt(2 / M_PI), b = 0.044715, t = std::tanh(a * (x + b * x * x * x));
    value = 0.5 * x * (1 + t);
    derivative = 0.5 * (1 + t + x * (1 - t * t) * a * (1 + 3 * b * x * x));
  }
};

// For one type of sum.
template <typename Sum>
struct Run {
  EmulatedProduct product;
  EmulatedLayout a_layout, b_layout, c_layout, d_layout;
  const void *a, *b, *c;
  void* d;
  Sum alpha, beta;

  static std::int64_t place(const EmulatedLayout& layout, bool transposed, std::int64_t row,
                            std::int64_t column) {
    return transposed ? column + row * layout.stride : row + column * layout.stride;
  }

  void operator()() const {
    const std::int64_t depth = product.transpose_a ? a_layout.rows : a_layout.columns;
    for (std::int64_t column = 0; column < d_layout.columns; ++column)
      for (std::int64_t row = 0; row < d_layout.rows; ++row) {
        Sum sum = 0;
        for (std::int64_t k = 0; k < depth; ++k)
          sum += static_cast<Sum>(
                     element(a, a_layout.type, place(a_layout, product.transpose_a, row, k))) *
                 static_cast<Sum>(
                     element(b, b_layout.type, place(b_layout, product.transpose_b, k, column)));
        sum *= alpha;
        if (beta != 0)
          sum += beta * static_cast<Sum>(element(c, c_layout.type, row + column * c_layout.stride));
        put(d, d_layout.type, row + column * d_layout.stride,
            finish(static_cast<double>(sum), row, row + column * product.hidden_stride));
      }
  }

  double finish(double sum, std::int64_t row, std::int64_t hidden_place) const {
    const cudaDataType_t type = d_layout.type;
    switch (product.epilogue) {
      case CUBLASLT_EPILOGUE_DEFAULT:
        return sum;
      case CUBLASLT_EPILOGUE_BIAS:
        return sum + element(product.bias, type, row);
      case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        sum += element(product.bias, type, row);
        put(product.hidden, type, hidden_place, sum);
        return Gelu(sum).value;
      case CUBLASLT_EPILOGUE_DGELU:
        break;
    }
    return sum * Gelu(element(product.hidden, type, hidden_place)).derivative;
  }
};

template <typename Sum>
void enqueue_run(cudaStream_t stream, const Run<Sum>& run) {
  const std::lock_guard lock(emulator::device_mutex());
  emulator::enqueue(stream, run);
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
  if (stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new EmulatedLayout{type, static_cast<std::int64_t>(rows),
                               static_cast<std::int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t,
                                        cudaDataType_t) {
  *product = new EmulatedProduct;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  // cuBLASLt's documented size of the attribute.
  const std::size_t expected = attribute <= CUBLASLT_MATMUL_DESC_EPILOGUE ? 4 : 8;
  if (bytes != expected) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      product->transpose_a = *static_cast<const cublasOperation_t*>(value) == CUBLAS_OP_T;
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      product->transpose_b = *static_cast<const cublasOperation_t*>(value) == CUBLAS_OP_T;
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      product->epilogue = *static_cast<const cublasLtEpilogue_t*>(value);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      product->bias = *static_cast<void* const*>(value);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      product->hidden = *static_cast<void* const*>(value);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      product->hidden_stride = *static_cast<const std::int64_t*>(value);
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new EmulatedPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void*, std::size_t bytes) {
  const std::size_t expected = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
  return bytes == expected ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  const bool with_gelu = product->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                         product->epilogue == CUBLASLT_EPILOGUE_DGELU;
  const bool has_none = (product->epilogue != CUBLASLT_EPILOGUE_DEFAULT && d->type == CUDA_R_64F) ||
                        (with_gelu && (d->type == CUDA_R_32F || product->hidden_stride % 8 != 0));
  *found = has_none ? 0 : 1;
  if (has_none) return CUBLAS_STATUS_NOT_SUPPORTED;
  *results = {};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t, cudaStream_t stream) {
  const auto run = [&]<typename Sum>(Sum) {
    enqueue_run(stream, Run<Sum>{*product, *a_layout, *b_layout, *c_layout, *d_layout, a, b, c, d,
                                 *static_cast<const Sum*>(alpha), *static_cast<const Sum*>(beta)});
  };
  if (d_layout->type == CUDA_R_64F)
    run(double{});
  else
    run(float{});
  return CUBLAS_STATUS_SUCCESS;
}
