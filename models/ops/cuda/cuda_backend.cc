#include "models/ops/cuda/cuda_backend.h"

#include "collectives/base/cuda/check.h"
#include "collectives/base/error.h"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/narrow_types.h"

namespace lockstep::cuda {

template <typename T>
T* CudaBackend::room(Room which, Count count) {
  Tensor& memory = memory_[which];
  const Count bytes = count * static_cast<Count>(sizeof(T));
  if (memory.count() < bytes) ensure(memory, {bytes}, DType::u8, ledger_, MemoryUse::workspace);
  return memory.data<T>();
}

template <typename T>
const T* CudaBackend::upload(Room which, std::span<const T> values) {
  T* const into = room<T>(which, std::ssize(values));
  uploads_.copy(stream_(), into, values.data(), std::ssize(values) * static_cast<Count>(sizeof(T)));
  return into;
}

double CudaBackend::read(const double* on_gpu) {
  double* const number = uploads_.number();
  check(cudaMemcpyAsync(number, on_gpu, sizeof(double), cudaMemcpyDeviceToHost, stream_()),
        "copy from the GPU");
  check(cudaStreamSynchronize(stream_()), "wait for the GPU");
  return *number;
}

double CudaBackend::sum_of_losses(Count rows) {
  double* const total = room<double>(sum, 1);
  sum_doubles(stream_(), total, room<double>(losses, rows), rows);
  return read(total);
}

RowPlaces CudaBackend::on_gpu(RowPlaces places) {
  if (!places.listed.empty()) places.listed = {upload(tokens, places.listed), places.listed.size()};
  return places;
}

Dropout CudaBackend::on_gpu(Dropout dropout) {
  if (dropout.rate > 0) dropout.places = on_gpu(dropout.places);
  return dropout;
}

void CudaBackend::copy(const Matrix& into, const Matrix& from, double beta) {
  copy_each({into}, {from}, beta);
}

void CudaBackend::copy_each(const Matrices& into, const Matrices& from, double beta) {
  cuda::copy(stream_(), into, from, beta != 0);
}

void CudaBackend::gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
  gemm_.run(stream_(), a, b, c, c.slice, beta, {},
            room<std::byte>(products, Gemm::workspace_bytes));
}

void CudaBackend::gemm_bias(const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
                            Slice bias) {
  const Epilogue epilogue{.kind = Epilogue::Kind::bias, .bias = bias};
  if (!gemm_.run(stream_(), a, b, c, base, base.data ? 1 : 0, epilogue,
                 room<std::byte>(products, Gemm::workspace_bytes)))
    Backend::gemm_bias(a, b, c, base, bias);
}

void CudaBackend::gemm_bias_gelu(const Matrix& a, const Matrix& b, const Matrix& hidden,
                                 Slice activated, Slice bias) {
  const Epilogue epilogue{.kind = Epilogue::Kind::bias_gelu, .bias = bias, .hidden = hidden.slice};
  Matrix result = hidden;
  result.slice = activated;
  if (!gemm_.run(stream_(), a, b, result, {}, 0, epilogue,
                 room<std::byte>(products, Gemm::workspace_bytes)))
    Backend::gemm_bias_gelu(a, b, hidden, activated, bias);
}

void CudaBackend::gemm_gelu_backward(const Matrix& a, const Matrix& b, const Matrix& c,
                                     Slice hidden) {
  const Epilogue epilogue{.kind = Epilogue::Kind::gelu_backward, .hidden = hidden};
  if (!gemm_.run(stream_(), a, b, c, {}, 0, epilogue,
                 room<std::byte>(products, Gemm::workspace_bytes)))
    Backend::gemm_gelu_backward(a, b, c, hidden);
}

void CudaBackend::add_bias(Slice out, Slice base, Slice bias, Count rows) {
  cuda::add_bias(stream_(), out, base, bias, rows);
}

void CudaBackend::sum_rows(Slice sums, Slice x, Count rows) {
  auto* const memory = room<std::byte>(parts, column_parts_bytes(rows, sums.count, x.dtype, 1));
  cuda::sum_rows(stream_(), sums, x, rows, memory);
}

void CudaBackend::bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                                   const Dropout& dropout) {
  cuda::bias_dropout_add(stream_(), out, base, x, bias, rows, on_gpu(dropout));
}

void CudaBackend::dropout(Slice out, Slice x, Count rows, const Dropout& which) {
  cuda::dropout(stream_(), out, x, rows, on_gpu(which));
}
void CudaBackend::unpack(Slice out, Slice packed, const Packing& packing) {
  cuda::unpack(stream_(), out, packed, packing);
}

void CudaBackend::layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight, Slice bias,
                             Count rows, double epsilon) {
  cuda::layer_norm(stream_(), out, mean, rstd, x, weight, bias, rows, epsilon);
}

void CudaBackend::layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x, Slice mean,
                                            Slice rstd, Slice weight, Count rows) {
  cuda::layer_norm_backward_input(stream_(), dx, base, dout, x, mean, rstd, weight, rows);
}

void CudaBackend::layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x,
                                             Slice mean, Slice rstd, Count rows) {
  auto* const memory = room<std::byte>(parts, column_parts_bytes(rows, dweight.count, x.dtype, 2));
  cuda::layer_norm_backward_weight(stream_(), dweight, dbias, dout, x, mean, rstd, rows, memory);
}

void CudaBackend::scale(Slice x, double factor) { cuda::scale(stream_(), x, factor); }

void CudaBackend::gelu(Slice out, Slice x) { cuda::gelu(stream_(), out, x); }

void CudaBackend::gelu_backward(Slice dx, Slice dout, Slice x) {
  cuda::gelu_backward(stream_(), dx, dout, x);
}

const std::int32_t* CudaBackend::first_keys_of(AttentionPart part) {
  if (part.documents.empty()) return nullptr;
  part.documents = {upload(documents, part.documents), part.documents.size()};
  auto* const first = room<std::int32_t>(first_keys, part.sequences * part.queries.count());
  find_first_keys(stream_(), first, part);
  return first;
}

SeenKeys CudaBackend::seen_keys(const AttentionPart& part) {
  auto* const end = room<std::int32_t>(key_ends, part.queries.count());
  find_key_ends(stream_(), end, part);
  return {.first = first_keys_of(part), .end = end};
}

const std::int32_t* CudaBackend::first_keys_of(const AttentionShape& s) {
  const Positions all = Positions::all(s.length);
  return first_keys_of(AttentionPart{s.sequences, s.heads, s.head_size, s.kv_heads, all, all,
                                     s.length, s.documents});
}

void CudaBackend::attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape,
                            const Dropout& dropout) {
  cuda::attention(stream_(), out, log_sum_exp, qkv, shape, first_keys_of(shape), dropout);
}

void CudaBackend::attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                                     Slice qkv, const AttentionShape& shape,
                                     const Dropout& dropout) {
  auto* const memory = room<std::byte>(parts, log_sum_exp.bytes());
  cuda::attention_backward(stream_(), dqkv, dout, out, log_sum_exp, qkv, shape,
                           first_keys_of(shape), dropout, memory);
}

void CudaBackend::attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k,
                                 const Matrix& v, const AttentionPart& part,
                                 const Dropout& dropout) {
  cuda::attention_part(stream_(), out, log_sum_exp, q, k, v, part, seen_keys(part), dropout);
}

void CudaBackend::merge_attention(Slice out, Slice log_sum_exp, Slice part_out,
                                  Slice part_log_sum_exp, const AttentionPart& part) {
  cuda::merge_attention(stream_(), out, log_sum_exp, part_out, part_log_sum_exp, part);
}

void CudaBackend::attention_products(Slice of_rows, Slice dout, Slice out,
                                     const AttentionPart& part) {
  cuda::attention_products(
      stream_(), of_rows.data, dout, out,
      {part.sequences, part.queries.count(), part.heads, part.head_size, part.kv_heads});
}

void CudaBackend::attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv,
                                          Slice dout, Slice log_sum_exp, Slice of_rows,
                                          const Matrix& q, const Matrix& k, const Matrix& v,
                                          const AttentionPart& part, const Dropout& dropout) {
  cuda::attention_part_backward(stream_(), dq, dk, dv, dout, log_sum_exp, of_rows, q, k, v, part,
                                seen_keys(part), dropout);
}

void CudaBackend::embedding(Slice out, Slice table, std::int32_t first_token,
                            std::span<const std::int32_t> inputs) {
  cuda::embedding(stream_(), out, table, first_token, upload(tokens, inputs), std::ssize(inputs));
}

void CudaBackend::embedding_backward(Slice dtokens, std::int32_t first_token, Slice dout,
                                     std::span<const std::int32_t> inputs) {
  const Count columns = dout.count / std::ssize(inputs);
  const EmbeddingPlan plan = plan_embedding_backward(inputs, first_token, dtokens.count / columns);
  if (plan.parts.empty()) return;
  const std::int32_t* const order = upload(tokens, std::span<const std::int32_t>(plan.order));
  const auto* const plans = upload(plan_parts, std::span<const EmbeddingPlan::Part>(plan.parts));
  const auto* const joints =
      upload(plan_joints, std::span<const EmbeddingPlan::Joint>(plan.joints));
  auto* const memory =
      room<std::byte>(slots, plan.slots * columns * element_bytes(statistics_type(dout.dtype)));
  cuda::embedding_backward(stream_(), dtokens, dout, columns, order, plans, std::ssize(plan.parts),
                           joints, std::ssize(plan.joints), memory);
}

void CudaBackend::add_positions(Slice out, Slice positions, const RowPlaces& places, Count rows) {
  cuda::add_positions(stream_(), out, positions, on_gpu(places), rows);
}

void CudaBackend::positions_backward(Slice dpositions, Slice dout, const RowPlaces& places,
                                     Count rows) {
  if (!places.listed.empty())
    return embedding_backward(dpositions, 0, dout,
                              places.listed.subspan(static_cast<std::size_t>(places.first),
                                                    static_cast<std::size_t>(rows)));
  cuda::positions_backward(stream_(), dpositions, dout, places, rows);
}

void CudaBackend::gather_rows(Slice out, Slice x, std::span<const std::int32_t> token_list,
                              std::span<const double> factor_list) {
  cuda::gather_rows(stream_(), out, x, upload(tokens, token_list),
                    factor_list.empty() ? nullptr : upload(factors, factor_list),
                    std::ssize(token_list));
}

void CudaBackend::combine_rows(Slice out, Slice base, Slice x, std::span<const std::int32_t> rows,
                               std::span<const double> factor_list, Count token_count) {
  cuda::combine_rows(stream_(), out, base, x, upload(tokens, rows),
                     factor_list.empty() ? nullptr : upload(factors, factor_list), token_count,
                     std::ssize(rows) / token_count);
}

void CudaBackend::row_products(Slice row_sums, Slice dout, Slice x,
                               std::span<const std::int32_t> rows, Count token_count) {
  cuda::row_products(stream_(), row_sums, dout, x, upload(tokens, rows), token_count,
                     std::ssize(rows) / token_count);
}

double CudaBackend::cross_entropy(Slice logits, std::span<const std::int32_t> targets, Count real,
                                  double scale, double smoothing) {
  const Count rows = std::ssize(targets);
  cuda::cross_entropy(stream_(), room<double>(losses, rows), logits, upload(tokens, targets), rows,
                      real, scale, smoothing);
  return sum_of_losses(rows);
}

void CudaBackend::softmax_highest(Slice highest, Slice logits, Count real) {
  cuda::softmax_highest(stream_(), highest, logits, real);
}

void CudaBackend::softmax_sums(Slice sums, Slice logits, Slice highest,
                               std::span<const std::int32_t> targets, std::int32_t first_column,
                               Count real) {
  cuda::softmax_sums(stream_(), sums, logits, highest, upload(tokens, targets), std::ssize(targets),
                     first_column, real);
}

double CudaBackend::softmax_gradient(Slice logits, Slice sums,
                                     std::span<const std::int32_t> targets,
                                     std::int32_t first_column, Count real, Count vocabulary,
                                     double scale, double smoothing) {
  const Count rows = std::ssize(targets);
  cuda::softmax_gradient(stream_(), room<double>(losses, rows), logits, sums,
                         upload(tokens, targets), rows, first_column, real, vocabulary, scale,
                         smoothing);
  return sum_of_losses(rows);
}

void CudaBackend::adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
                        const AdamWStep& step) {
  cuda::adamw(stream_(), value, gradient, first_moment, second_moment, step);
}

void CudaBackend::sgd(Slice value, Slice gradient, Slice momentum, const SgdStep& step) {
  cuda::sgd(stream_(), value, gradient, momentum, step);
}

void CudaBackend::nesterov(Slice direction, Slice gradient, Slice momentum, double keep,
                           double gradient_scale) {
  cuda::nesterov(stream_(), direction, gradient, momentum, keep, gradient_scale);
}

void CudaBackend::axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y) {
  cuda::axpby(stream_(), out, a, x, b, y);
}

double CudaBackend::squared_norm(Slice x) {
  double* const total = room<double>(sum, 1);
  cuda::squared_norm(stream_(), total, x, room<double>(losses, squared_norm_parts));
  return read(total);
}

}  // namespace lockstep::cuda
