// Products by oneDNN 2. Each thread makes a primitive for each shape once, and keeps it.
#include "models/ops/bf16_gemm.h"

#include <fmt/format.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <map>
#include <tuple>

#include "collectives/base/error.h"

namespace lockstep::host {
namespace {

void check(dnnl_status_t status, const char* what) {
  require(status == dnnl_success, [&] {
    return fmt::format("oneDNN cannot {} (status {})", what, static_cast<int>(status));
  });
}

dnnl_engine_t engine() {
  static const dnnl_engine_t made = [] {
    dnnl_engine_t created = nullptr;
    check(dnnl_engine_create(&created, dnnl_cpu, 0), "make an engine");
    return created;
  }();
  return made;
}

dnnl_memory_desc_t description(const Matrix& matrix) {
  const Count rows = matrix.transposed ? matrix.columns : matrix.rows;
  const Count columns = matrix.transposed ? matrix.rows : matrix.columns;
  const dnnl_dims_t sizes = {rows, columns};
  const dnnl_dims_t strides = {matrix.transposed ? 1 : matrix.stride,
                               matrix.transposed ? matrix.stride : 1};
  dnnl_memory_desc_t made{};
  const auto type = matrix.slice.dtype == DType::bf16 ? dnnl_bf16 : dnnl_f32;
  check(dnnl_memory_desc_init_by_strides(&made, 2, sizes, type, strides), "describe a matrix");
  return made;
}

// One shape's product.
class Product {
 public:
  Product(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
    const dnnl_memory_desc_t left = description(a), right = description(b), sum = description(c);
    dnnl_matmul_desc_t operation{};
    check(dnnl_matmul_desc_init(&operation, &left, &right, nullptr, &sum), "describe a product");
    dnnl_primitive_attr_t attributes = nullptr;
    dnnl_post_ops_t after = nullptr;
    check(dnnl_primitive_attr_create(&attributes), "make attributes");
    check(dnnl_post_ops_create(&after), "make attributes");
    if (beta != 0) check(dnnl_post_ops_append_sum(after, 1), "add to a matrix");
    check(dnnl_primitive_attr_set_post_ops(attributes, after), "set attributes");
    dnnl_primitive_desc_t plan = nullptr;
    check(dnnl_primitive_desc_create(&plan, &operation, attributes, engine(), nullptr),
          "plan a product of bf16");
    check(dnnl_primitive_create(&primitive_, plan), "make a product of bf16");
    dnnl_primitive_desc_destroy(plan);
    dnnl_post_ops_destroy(after);
    dnnl_primitive_attr_destroy(attributes);
    for (const auto& [memory, matrix] :
         {std::pair{&left_, &left}, {&right_, &right}, {&sum_, &sum}})
      check(dnnl_memory_create(memory, matrix, engine(), DNNL_MEMORY_NONE), "make a memory");
    check(dnnl_stream_create(&stream_, engine(), dnnl_stream_default_flags), "make a stream");
  }
  Product(const Product&) = delete;
  ~Product() {
    dnnl_stream_destroy(stream_);
    for (dnnl_memory_t memory : {left_, right_, sum_}) dnnl_memory_destroy(memory);
    dnnl_primitive_destroy(primitive_);
  }

  void run(Slice a, Slice b, Slice c) {
    dnnl_memory_set_data_handle(left_, a.data);
    dnnl_memory_set_data_handle(right_, b.data);
    dnnl_memory_set_data_handle(sum_, c.data);
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, left_}, {DNNL_ARG_WEIGHTS, right_}, {DNNL_ARG_DST, sum_}};
    check(dnnl_primitive_execute(primitive_, stream_, 3, arguments), "multiply");
    check(dnnl_stream_wait(stream_), "multiply");
  }

 private:
  dnnl_primitive_t primitive_ = nullptr;
  dnnl_memory_t left_ = nullptr, right_ = nullptr, sum_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
};

}  // namespace

bool has_bf16_gemm() {
  const dnnl_cpu_isa_t instructions = dnnl_get_effective_cpu_isa();
  return instructions == dnnl_cpu_isa_avx512_core_bf16 ||
         instructions == dnnl_cpu_isa_avx512_core_amx;
}

void bf16_gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
  // As for f32: products are wrong if OpenMP gives fewer threads than it promises.
  if (omp_get_max_threads() > omp_get_thread_limit()) omp_set_num_threads(omp_get_thread_limit());
  const auto shape = [](const Matrix& m) {
    return std::tuple(m.rows, m.columns, m.stride, m.transposed, m.slice.dtype);
  };
  using Shape = decltype(shape(a));
  using Key = std::tuple<Shape, Shape, Shape, bool, int>;
  thread_local std::map<Key, Product> products;
  const Key key{shape(a), shape(b), shape(c), beta != 0, omp_get_max_threads()};
  const auto [product, is_new] = products.try_emplace(key, a, b, c, beta);
  product->second.run(a.slice, b.slice, c.slice);
}

}  // namespace lockstep::host
