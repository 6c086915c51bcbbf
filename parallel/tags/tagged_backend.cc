#include "parallel/tags/tagged_backend.h"

#include "parallel/tags/tag_use.h"

namespace lockstep {

using AxisKind = TagAxis::Kind;

void TaggedBackend::copy(const Matrix& into, const Matrix& from, double beta) {
  TagUse use(state_, "copy");
  use.write_or_add(into.slice, use.any(from, "from"), beta);
  inner_.copy(into, from, beta);
}

void TaggedBackend::gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
  TagUse use(state_, "gemm");
  use.write_or_add(c.slice, use.gemm(a, b), beta);
  inner_.gemm(a, b, c, beta);
}

void TaggedBackend::add_bias(Slice out, Slice base, Slice bias, Count rows) {
  TagUse use(state_, "add_bias");
  const Tag of_bias = use.any(bias, "bias");
  use.write(out, base.count > 0 ? use.sum(use.any(base, "base"), of_bias, "base + bias") : of_bias);
  inner_.add_bias(out, base, bias, rows);
}

void TaggedBackend::gemm_bias(const Matrix& a, const Matrix& b, const Matrix& c, Slice base,
                              Slice bias) {
  TagUse use(state_, "gemm_bias");
  use.write(c.slice, use.gemm_bias(a, b, base, bias));
  inner_.gemm_bias(a, b, c, base, bias);
}

void TaggedBackend::gemm_bias_gelu(const Matrix& a, const Matrix& b, const Matrix& hidden,
                                   Slice activated, Slice bias) {
  TagUse use(state_, "gemm_bias_gelu");
  use.write(hidden.slice, use.gemm_bias(a, b, {}, bias));
  use.write(activated, use.whole(hidden.slice, "hidden"));
  inner_.gemm_bias_gelu(a, b, hidden, activated, bias);
}

void TaggedBackend::gemm_gelu_backward(const Matrix& a, const Matrix& b, const Matrix& c,
                                       Slice hidden) {
  TagUse use(state_, "gemm_gelu_backward");
  use.write(c.slice, use.product(use.gemm(a, b), use.whole(hidden, "hidden"), "dout * gelu'"));
  inner_.gemm_gelu_backward(a, b, c, hidden);
}

void TaggedBackend::sum_rows(Slice sum, Slice x, Count rows) {
  TagUse use(state_, "sum_rows");
  use.add(sum, use.row_sum(use.any(x, "x")));
  inner_.sum_rows(sum, x, rows);
}

void TaggedBackend::bias_dropout_add(Slice out, Slice base, Slice x, Slice bias, Count rows,
                                     const Dropout& dropout) {
  TagUse use(state_, "bias_dropout_add");
  const Tag sum = use.sum(use.any(x, "x"), use.any(bias, "bias"), "x + bias");
  use.write(out, base.count > 0 ? use.sum(use.any(base, "base"), sum, "base + x") : sum);
  inner_.bias_dropout_add(out, base, x, bias, rows, dropout);
}

void TaggedBackend::dropout(Slice out, Slice x, Count rows, const Dropout& dropout) {
  TagUse use(state_, "dropout");
  use.write(out, use.any(x, "x"));
  inner_.dropout(out, x, rows, dropout);
}

void TaggedBackend::unpack(Slice out, Slice packed, const Packing& packing) {
  TagUse use(state_, "unpack");
  use.write(out, use.any(packed, "packed"));
  inner_.unpack(out, packed, packing);
}

void TaggedBackend::layer_norm(Slice out, Slice mean, Slice rstd, Slice x, Slice weight, Slice bias,
                               Count rows, double epsilon) {
  TagUse use(state_, "layer_norm");
  const Tag scaled = use.product(use.whole_rows(x, "x"), use.any(weight, "weight"), "x * weight");
  const Tag tag = use.sum(scaled, use.any(bias, "bias"), "x + bias");
  for (const Slice& made : {out, mean, rstd}) use.write(made, tag);
  inner_.layer_norm(out, mean, rstd, x, weight, bias, rows, epsilon);
}

void TaggedBackend::layer_norm_backward_input(Slice dx, Slice base, Slice dout, Slice x, Slice mean,
                                              Slice rstd, Slice weight, Count rows) {
  TagUse use(state_, "layer_norm_backward_input");
  const Tag tag = use.product(use.any(dout, "dout"), use.whole_rows(x, "x"), "dout * x");
  use.write(dx, base.count > 0 ? use.sum(use.any(base, "base"), tag, "base + dx") : tag);
  inner_.layer_norm_backward_input(dx, base, dout, x, mean, rstd, weight, rows);
}

void TaggedBackend::layer_norm_backward_weight(Slice dweight, Slice dbias, Slice dout, Slice x,
                                               Slice mean, Slice rstd, Count rows) {
  TagUse use(state_, "layer_norm_backward_weight");
  const Tag of_dout = use.any(dout, "dout");
  use.add(dweight, use.row_sum(use.product(of_dout, use.whole_rows(x, "x"), "dout * x")));
  use.add(dbias, use.row_sum(of_dout));
  inner_.layer_norm_backward_weight(dweight, dbias, dout, x, mean, rstd, rows);
}

void TaggedBackend::scale(Slice x, double factor) {
  TagUse use(state_, "scale");
  use.write(x, use.any(x, "x"));
  inner_.scale(x, factor);
}

void TaggedBackend::gelu(Slice out, Slice x) {
  TagUse use(state_, "gelu");
  use.write(out, use.whole(x, "x"));
  inner_.gelu(out, x);
}

void TaggedBackend::gelu_backward(Slice dx, Slice dout, Slice x) {
  TagUse use(state_, "gelu_backward");
  use.write(dx, use.product(use.any(dout, "dout"), use.whole(x, "x"), "dout * gelu'"));
  inner_.gelu_backward(dx, dout, x);
}

void TaggedBackend::embedding(Slice out, Slice tokens, std::int32_t first_token,
                              std::span<const std::int32_t> inputs) {
  TagUse use(state_, "embedding");
  Tag tag = use.any(tokens, "the table");
  // A rank looks up its own rows of the table, for its own inputs.
  for (std::size_t axis = 0; axis < state_.axes().count(); ++axis)
    tag[axis] = state_.axes()[axis].varies_by_tokens() ? Along::rows : row_sum_of(tag[axis]);
  use.write(out, tag);
  inner_.embedding(out, tokens, first_token, inputs);
}

void TaggedBackend::embedding_backward(Slice dtokens, std::int32_t first_token, Slice dout,
                                       std::span<const std::int32_t> inputs) {
  TagUse use(state_, "embedding_backward");
  Tag tag = use.any(dout, "dout");
  state_.refuse(tag, "dout", [](const TagAxis& axis, Along along) {
    return axis.kind == AxisKind::layers && along == Along::rows;
  });
  const Tag table = state_.of_gradient(dtokens);
  for (std::size_t axis = 0; axis < state_.axes().count(); ++axis)
    tag[axis] = table[axis] == Along::rows && tag[axis] == Along::replicated
                    ? Along::rows
                    : row_sum_of(tag[axis]);
  use.add(dtokens, tag);
  inner_.embedding_backward(dtokens, first_token, dout, inputs);
}

void TaggedBackend::add_positions(Slice out, Slice positions, const RowPlaces& places, Count rows) {
  TagUse use(state_, "add_positions");
  use.write(out, use.sum(use.any(out, "out"), use.any(positions, "positions"), "out + positions"));
  inner_.add_positions(out, positions, places, rows);
}

void TaggedBackend::positions_backward(Slice dpositions, Slice dout, const RowPlaces& places,
                                       Count rows) {
  TagUse use(state_, "positions_backward");
  use.add(dpositions, use.row_sum(use.any(dout, "dout")));
  inner_.positions_backward(dpositions, dout, places, rows);
}

void TaggedBackend::gather_rows(Slice out, Slice x, std::span<const std::int32_t> tokens,
                                std::span<const double> factors) {
  TagUse use(state_, "gather_rows");
  use.write(out, use.any(x, "x"));
  inner_.gather_rows(out, x, tokens, factors);
}

void TaggedBackend::combine_rows(Slice out, Slice base, Slice x, std::span<const std::int32_t> rows,
                                 std::span<const double> factors, Count tokens) {
  TagUse use(state_, "combine_rows");
  const Tag tag = use.any(x, "x");
  use.write(out, base.count > 0 ? use.sum(use.any(base, "base"), tag, "base + x") : tag);
  inner_.combine_rows(out, base, x, rows, factors, tokens);
}

void TaggedBackend::row_products(Slice products, Slice dout, Slice x,
                                 std::span<const std::int32_t> rows, Count tokens) {
  TagUse use(state_, "row_products");
  Tag tag = use.product(use.any(dout, "dout"), use.whole(x, "x"), "dout * x");
  for (Along& along : tag.along)
    if (along == Along::columns) along = Along::partial;
  use.write(products, tag);
  inner_.row_products(products, dout, x, rows, tokens);
}

void TaggedBackend::add_no_rows(Slice gradient, Slice x) {
  TagUse use(state_, "add_no_rows");
  use.add(gradient, state_.without_rows(gradient, use.any(x, "x")));
  inner_.add_no_rows(gradient, x);
}

Routing TaggedBackend::route(const Router& router, Slice scores, Count sequences) {
  TagUse use(state_, "route");
  use.whole_rows(scores, "scores");
  return inner_.route(router, scores, sequences);
}

void TaggedBackend::route_backward(const Router& router, Slice dscores, Slice scores,
                                   Slice products, const Routing& routing, Count sequences,
                                   double scale) {
  TagUse use(state_, "route_backward");
  use.write(dscores, use.product(use.whole_rows(scores, "scores"),
                                 use.whole_rows(products, "products"), "scores * products"));
  inner_.route_backward(router, dscores, scores, products, routing, sequences, scale);
}

double TaggedBackend::cross_entropy(Slice logits, std::span<const std::int32_t> targets, Count real,
                                    double scale, double smoothing) {
  TagUse use(state_, "cross_entropy");
  use.write(logits, use.whole_rows(logits, "logits"));
  return inner_.cross_entropy(logits, targets, real, scale, smoothing);
}

void TaggedBackend::softmax_highest(Slice highest, Slice logits, Count real) {
  TagUse use(state_, "softmax_highest");
  Tag tag = use.whole(logits, "logits");
  for (Along& along : tag.along)
    if (along == Along::columns) along = Along::partial;
  use.write(highest, tag);
  inner_.softmax_highest(highest, logits, real);
}

void TaggedBackend::softmax_sums(Slice sums, Slice logits, Slice highest,
                                 std::span<const std::int32_t> targets, std::int32_t first_column,
                                 Count real) {
  TagUse use(state_, "softmax_sums");
  Tag tag = use.product(use.whole(logits, "logits"), use.whole(highest, "highest"), "z - highest");
  for (Along& along : tag.along)
    if (along == Along::columns) along = Along::partial;
  use.write(sums, tag);
  inner_.softmax_sums(sums, logits, highest, targets, first_column, real);
}

double TaggedBackend::softmax_gradient(Slice logits, Slice sums,
                                       std::span<const std::int32_t> targets,
                                       std::int32_t first_column, Count real, Count vocabulary,
                                       double scale, double smoothing) {
  TagUse use(state_, "softmax_gradient");
  use.write(logits, use.product(use.whole(logits, "logits"), use.whole(sums, "sums"), "p / sum"));
  return inner_.softmax_gradient(logits, sums, targets, first_column, real, vocabulary, scale,
                                 smoothing);
}

void TaggedBackend::adamw(Slice value, Slice gradient, Slice first_moment, Slice second_moment,
                          const AdamWStep& step) {
  TagUse use(state_, "adamw");
  check_.stepped(value, gradient);
  inner_.adamw(value, gradient, first_moment, second_moment, step);
}

void TaggedBackend::sgd(Slice value, Slice gradient, Slice momentum, const SgdStep& step) {
  TagUse use(state_, "sgd");
  check_.stepped(value, gradient);
  inner_.sgd(value, gradient, momentum, step);
}

// A direction is no gradient any more: what becomes of it has no tags.
void TaggedBackend::nesterov(Slice direction, Slice gradient, Slice momentum, double keep,
                             double gradient_scale) {
  TagUse use(state_, "nesterov");
  check_.stepped(direction, gradient);
  state_.tags().forget(direction.data, direction.bytes());
  inner_.nesterov(direction, gradient, momentum, keep, gradient_scale);
}

// Of directions, or of a value, which keeps its tags.
void TaggedBackend::axpby(const Matrix& out, double a, const Matrix& x, double b, const Matrix& y) {
  TagUse use(state_, "axpby");
  if (out.slice.data != x.slice.data) state_.tags().forget(out.slice.data, out.slice.bytes());
  inner_.axpby(out, a, x, b, y);
}

// Of directions, too.
void TaggedBackend::singular_vectors(const Matrix& of, const Matrix& left, const Matrix& right,
                                     Slice scratch) {
  TagUse use(state_, "singular_vectors");
  for (const Slice& vectors : {left.slice, right.slice})
    if (vectors.device) state_.tags().forget(vectors.data, vectors.bytes());
  inner_.singular_vectors(of, left, right, scratch);
}

double TaggedBackend::squared_norm(Slice x) {
  TagUse use(state_, "squared_norm");
  check_.squared(x);
  return inner_.squared_norm(x);
}

}  // namespace lockstep
