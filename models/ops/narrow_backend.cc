#include "models/ops/narrow_backend.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "models/ops/bf16_gemm.h"

namespace lockstep {

Slice NarrowBackend::room(int operand, Slice like) {
  if (!is_narrow(like.dtype)) return like;
  Tensor& room = rooms_[static_cast<std::size_t>(operand)];
  if (room.count() < like.count)
    ensure(room, {like.count}, DType::f32, ledger_, MemoryUse::workspace);
  return room.slice().first(like.count);
}

Slice NarrowBackend::widened(int operand, Slice x) {
  if (!x.data || !is_narrow(x.dtype)) return x;
  const Slice wide = room(operand, x);
  convert(wide, x);
  return wide;
}

namespace {

// Rounds a result that was computed in separate memory.
void store(Slice into, Slice wide) {
  if (into.data != wide.data) convert(into, wide);
}

Matrix with(Matrix matrix, Slice slice) {
  matrix.slice = slice;
  return matrix;
}

// Block by block: uses little memory, and the bits do not depend on the number of threads.
template <typename Work>
void for_each_block(Count count, Work work) {
  constexpr Count block = 1 << 16;
  for (Count begin = 0; begin < count; begin += block) work(begin, std::min(block, count - begin));
}

}  // namespace

bool host_multiplies_bf16() {
  static const bool has_instructions = host::has_bf16_gemm();
  return has_instructions;
}

void NarrowBackend::gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
  if (c.slice.dtype == DType::bf16 && multiplies_bf16_) {
    if (c.slice.device->stores()) host::bf16_gemm(a, b, c, beta);
    return;
  }
  const Slice sum = beta == 0 ? room(2, c.slice) : widened(2, c.slice);
  wide_.gemm(with(a, widened(0, a.slice)), with(b, widened(1, b.slice)), with(c, sum), beta);
  store(c.slice, sum);
}

void NarrowBackend::add_bias(Slice out, Slice base, Slice bias, Count rows) {
  const Slice sum = room(0, out);
  wide_.add_bias(sum, widened(1, base), widened(2, bias), rows);
  store(out, sum);
}

void NarrowBackend::sum_rows(Slice sum, Slice x, Count rows) {
  const Slice wide = widened(0, sum);
  wide_.sum_rows(wide, widened(1, x), rows);
  store(sum, wide);
}

void NarrowBackend::bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                                     const Dropout& dropout) {
  const Slice wide = room(0, out);
  wide_.bias_dropout_add(wide, widened(1, base), widened(2, x), widened(3, bias), rows, dropout);
  store(out, wide);
}

void NarrowBackend::dropout(Slice out, Slice x, Count rows, const Dropout& which) {
  const Slice wide = room(0, out);
  wide_.dropout(wide, widened(1, x), rows, which);
  store(out, wide);
}

void NarrowBackend::layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight, Slice bias,
                               Count rows, double epsilon) {
  const Slice wide = room(0, out);
  wide_.layer_norm(wide, mean, rstd, widened(1, x), widened(2, weight), widened(3, bias), rows,
                   epsilon);
  store(out, wide);
}

void NarrowBackend::layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x, Slice mean,
                                              Slice rstd, Slice weight, Count rows) {
  const Slice wide = room(0, dx);
  wide_.layer_norm_backward_input(wide, widened(1, base), widened(2, dout), widened(3, x), mean,
                                  rstd, widened(4, weight), rows);
  store(dx, wide);
}

void NarrowBackend::layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x,
                                               Slice mean, Slice rstd, Count rows) {
  const Slice weight = widened(0, dweight), bias = widened(1, dbias);
  wide_.layer_norm_backward_weight(weight, bias, widened(2, dout), widened(3, x), mean, rstd, rows);
  store(dweight, weight);
  store(dbias, bias);
}

void NarrowBackend::scale(Slice x, double factor) {
  wide_.scale(widened(0, x), factor);
  store(x, room(0, x));
}

void NarrowBackend::gelu(Slice out, Slice x) {
  const Slice wide = room(0, out);
  wide_.gelu(wide, widened(1, x));
  store(out, wide);
}

void NarrowBackend::gelu_backward(Slice dx, Slice dout, Slice x) {
  const Slice wide = room(0, dx);
  wide_.gelu_backward(wide, widened(1, dout), widened(2, x));
  store(dx, wide);
}

// Attention computes in blocks, and widens only these.
void NarrowBackend::attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& shape,
                              const Dropout& dropout) {
  wide_.attention(out, log_sum_exp, qkv, shape, dropout);
}

void NarrowBackend::attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                                       Slice qkv, const AttentionShape& shape,
                                       const Dropout& dropout) {
  wide_.attention_backward(dqkv, dout, out, log_sum_exp, qkv, shape, dropout);
}

void NarrowBackend::attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k,
                                   const Matrix& v, const AttentionPart& part,
                                   const Dropout& dropout) {
  wide_.attention_part(out, log_sum_exp, q, k, v, part, dropout);
}

void NarrowBackend::merge_attention(Slice out, Slice log_sum_exp, Slice part_out,
                                    Slice part_log_sum_exp, const AttentionPart& part) {
  wide_.merge_attention(out, log_sum_exp, part_out, part_log_sum_exp, part);
}

void NarrowBackend::attention_products(Slice products, Slice dout, Slice out,
                                       const AttentionPart& part) {
  wide_.attention_products(products, dout, out, part);
}

void NarrowBackend::attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv,
                                            Slice dout, Slice log_sum_exp, Slice products,
                                            const Matrix& q, const Matrix& k, const Matrix& v,
                                            const AttentionPart& part, const Dropout& dropout) {
  wide_.attention_part_backward(dq, dk, dv, dout, log_sum_exp, products, q, k, v, part, dropout);
}

// Only copies, computes nothing.
void NarrowBackend::embedding(Slice out, Slice tokens, std::int32_t first_token,
                              std::span<const std::int32_t> inputs) {
  wide_.embedding(out, tokens, first_token, inputs);
}

// Widens only the rows of the table that occur, so its size does not matter.
void NarrowBackend::embedding_backward(Slice dtokens, std::int32_t first_token, Slice dout,
                                       std::span<const std::int32_t> inputs) {
  if (!is_narrow(dout.dtype)) return wide_.embedding_backward(dtokens, first_token, dout, inputs);
  const Count width = dout.count / std::ssize(inputs), here = dtokens.count / width;
  constexpr std::int32_t elsewhere = -1;
  std::unordered_map<Count, std::int32_t> place_of;
  std::vector<Count> distinct;
  std::vector<std::int32_t> places;
  for (const std::int32_t token : inputs) {
    const Count row = Count{token} - first_token;
    if (row < 0 || row >= here) {
      places.push_back(elsewhere);
      continue;
    }
    const auto [place, is_new] =
        place_of.try_emplace(row, static_cast<std::int32_t>(distinct.size()));
    if (is_new) distinct.push_back(row);
    places.push_back(place->second);
  }
  const Slice table = room(0, dout.first(std::ssize(distinct) * width));
  const auto for_rows = [&](auto use) {
    for (std::size_t i = 0; i < distinct.size(); ++i)
      use(table.part(static_cast<Count>(i) * width, width),
          dtokens.part(distinct[i] * width, width));
  };
  for_rows([](Slice wide, Slice row) { wide.device->convert(wide, row); });
  wide_.embedding_backward(table, 0, widened(1, dout), places);
  for_rows([](Slice wide, Slice row) { row.device->convert(row, wide); });
}

void NarrowBackend::add_positions(Slice out, Slice positions, const RowPlaces& places, Count rows) {
  const Slice sum = widened(0, out);
  wide_.add_positions(sum, widened(1, positions), places, rows);
  store(out, sum);
}

void NarrowBackend::positions_backward(Slice dpositions, Slice dout, const RowPlaces& places,
                                       Count rows) {
  const Slice used = dpositions.first(places.length * (dout.count / rows)), sum = widened(0, used);
  wide_.positions_backward(sum, widened(1, dout), places, rows);
  store(used, sum);
}

void NarrowBackend::gather_rows(Slice out, Slice x, std::span<const std::int32_t> tokens,
                                std::span<const double> factors) {
  const Slice wide = room(0, out);
  wide_.gather_rows(wide, widened(1, x), tokens, factors);
  store(out, wide);
}

void NarrowBackend::combine_rows(Slice out, Slice base, Slice x, std::span<const std::int32_t> rows,
                                 std::span<const double> factors, Count tokens) {
  const Slice wide = room(0, out);
  wide_.combine_rows(wide, widened(1, base), widened(2, x), rows, factors, tokens);
  store(out, wide);
}

void NarrowBackend::row_products(Slice products, Slice dout, Slice x,
                                 std::span<const std::int32_t> rows, Count tokens) {
  wide_.row_products(products, widened(0, dout), widened(1, x), rows, tokens);
}

double NarrowBackend::cross_entropy(Slice logits, std::span<const std::int32_t> targets, Count real,
                                    double scale, double smoothing) {
  const Slice wide = widened(0, logits);
  const double loss = wide_.cross_entropy(wide, targets, real, scale, smoothing);
  store(logits, wide);
  return loss;
}

void NarrowBackend::softmax_highest(Slice highest, Slice logits, Count real) {
  wide_.softmax_highest(highest, widened(0, logits), real);
}

void NarrowBackend::softmax_sums(Slice sums, Slice logits, Slice highest,
                                 std::span<const std::int32_t> targets, std::int32_t first_column,
                                 Count real) {
  const Slice wide = widened(0, logits);
  wide_.softmax_sums(sums, wide, highest, targets, first_column, real);
  store(logits, wide);
}

double NarrowBackend::softmax_gradient(Slice logits, Slice sums,
                                       std::span<const std::int32_t> targets,
                                       std::int32_t first_column, Count real, Count vocabulary,
                                       double scale, double smoothing) {
  const Slice wide = widened(0, logits);
  const double loss =
      wide_.softmax_gradient(wide, sums, targets, first_column, real, vocabulary, scale, smoothing);
  store(logits, wide);
  return loss;
}

void NarrowBackend::adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
                          const AdamWStep& step) {
  if (!is_narrow(gradient.dtype))
    return wide_.adamw(value, gradient, first_moment, second_moment, step);
  for_each_block(gradient.count, [&](Count begin, Count count) {
    wide_.adamw(value.part(begin, count), widened(0, gradient.part(begin, count)),
                first_moment.part(begin, count), second_moment.part(begin, count), step);
  });
}

void NarrowBackend::sgd(Slice value, Slice gradient, Slice momentum, const SgdStep& step) {
  if (!is_narrow(gradient.dtype)) return wide_.sgd(value, gradient, momentum, step);
  for_each_block(gradient.count, [&](Count begin, Count count) {
    wide_.sgd(value.part(begin, count), widened(0, gradient.part(begin, count)),
              momentum.device ? momentum.part(begin, count) : Slice{}, step);
  });
}

void NarrowBackend::nesterov(Slice direction, Slice gradient, Slice momentum, double keep,
                             double gradient_scale) {
  if (!is_narrow(gradient.dtype))
    return wide_.nesterov(direction, gradient, momentum, keep, gradient_scale);
  for_each_block(gradient.count, [&](Count begin, Count count) {
    wide_.nesterov(direction.part(begin, count), widened(0, gradient.part(begin, count)),
                   momentum.device ? momentum.part(begin, count) : Slice{}, keep, gradient_scale);
  });
}

double NarrowBackend::squared_norm(Slice x) {
  if (!is_narrow(x.dtype)) return wide_.squared_norm(x);
  double sum = 0;
  for_each_block(x.count, [&](Count begin, Count count) {
    sum += wide_.squared_norm(widened(0, x.part(begin, count)));
  });
  return sum;
}

}  // namespace lockstep
