#include "bench/techniques/context_error.h"

#include <fmt/format.h>

#include <cmath>

#include "models/data/token_layout.h"
#include "models/ops/device_backend.h"
#include "models/ops/narrow_types.h"
#include "models/random.h"
#include "models/tensor.h"

namespace lockstep {
namespace {

void store(Slice into, Slice from) {
  if (into.dtype == from.dtype)
    into.device->copy(into, from);
  else
    into.device->convert(into, from);
}

// Attention of one sequence in parts: `ranks` ranks, each with its own rows.
class RingOfParts {
 public:
  RingOfParts(const AttentionShape& shape, int ranks, DType dtype, bool rounds)
      : shape_(shape),
        count_(ranks),
        dtype_(dtype),
        rounds_(rounds),
        backend_(make_backend(ledger_)),
        statistics_(statistics_type(dtype)) {
    for (int rank = 0; rank < ranks; ++rank) {
      const TokenLayout layout{.order = ranks == 1 ? TokenOrder::whole : TokenOrder::zig_zag,
                               .ranks = ranks,
                               .rank = rank};
      ranks_.push_back({.positions = layout.positions(shape.length)});
      Rank& r = ranks_.back();
      r.qkv = random_rows(r.positions, shape.qkv_width(), 1);
      r.dout = random_rows(r.positions, shape.width(), 2);
      r.out = room(shape.width());
      r.log_sum_exp = room(shape.heads);
      r.gradients = room(shape.qkv_width());
      r.gradients.slice().device->zero(r.gradients.slice());
    }
  }

  void run() {
    const Tensor part_out = room(shape_.width()), part_sums = room(shape_.heads);
    for (int step = 0; step < count_; ++step)
      for (int i = 0; i < count_; ++i) attend(i, step, part_out.slice(), part_sums.slice());
    const Tensor products = room(shape_.heads);
    // A ring advances after each step, so gradients of a rank's keys add up in this order.
    for (int step = 0; step < count_; ++step)
      for (int i = 0; i < count_; ++i) attend_backward(i, step, products.slice());
  }

  // In the order of positions, in f64, as the type of the inputs has them.
  std::vector<double> output() { return collect(&Rank::out, shape_.width()); }
  std::vector<double> gradients() { return collect(&Rank::gradients, shape_.qkv_width()); }

 private:
  struct Rank {
    Positions positions;
    Tensor qkv, dout, out, log_sum_exp, gradients;
  };

  Rank& rank(int i) { return ranks_[static_cast<std::size_t>(i)]; }
  Tensor room(Count columns, DType dtype) {
    return {{shape_.length / count_, columns}, dtype, ledger_, MemoryUse::workspace};
  }
  Tensor room(Count columns) { return room(columns, statistics_); }

  // Returns random bf16 numbers, stored in the type of the inputs.
  Tensor random_rows(const Positions& positions, Count columns, std::uint64_t seed) {
    std::vector<float> values;
    for (Count i = 0; i < positions.count(); ++i)
      for (Count c = 0; c < columns; ++c)
        values.push_back(static_cast<float>(random_normal(seed, positions[i], c)));
    const Slice from = host_slice(std::span(values));
    round(from);
    Tensor rows({positions.count(), columns}, dtype_, ledger_, MemoryUse::workspace);
    store(rows.slice(), from);
    return rows;
  }

  void round(Slice values) {
    Tensor narrow({values.count}, DType::bf16, ledger_, MemoryUse::workspace);
    values.device->convert(narrow.slice(), values);
    values.device->convert(values, narrow.slice());
  }

  AttentionPart part_of(const Rank& queries, const Rank& keys) const {
    return {.sequences = shape_.sequences,
            .heads = shape_.heads,
            .head_size = shape_.head_size,
            .kv_heads = shape_.kv_heads,
            .queries = queries.positions,
            .keys = keys.positions,
            .length = shape_.length};
  }
  // Queries, keys or values of packed rows.
  Matrix columns(const Tensor& packed, int which) const {
    const Count kv_width = shape_.kv_heads * shape_.head_size, width = shape_.width();
    const Matrix all(packed.slice(), packed.rows(), shape_.qkv_width());
    return which == 0 ? all.columns_from(0, width)
                      : all.columns_from(width + (which - 1) * kv_width, kv_width);
  }

  void attend(int i, int step, Slice part_out, Slice part_sums) {
    Rank& own = rank(i);
    const Rank& visitor = rank((i - step + count_) % count_);
    const AttentionPart part = part_of(own, visitor);
    if (causal_pairs(part.queries, part.keys) == 0) return;
    const Slice out = step == 0 ? own.out.slice() : part_out,
                sums = step == 0 ? own.log_sum_exp.slice() : part_sums;
    backend_->attention_part(out, sums, columns(own.qkv, 0), columns(visitor.qkv, 1),
                             columns(visitor.qkv, 2), part, {});
    if (rounds_) round(out);
    if (step == 0) return;
    backend_->merge_attention(own.out.slice(), own.log_sum_exp.slice(), out, sums, part);
    if (rounds_) round(own.out.slice());
  }

  void attend_backward(int i, int step, Slice products) {
    Rank& own = rank(i);
    Rank& visitor = rank((i - step + count_) % count_);
    const AttentionPart part = part_of(own, visitor);
    if (causal_pairs(part.queries, part.keys) == 0) return;
    const Tensor out = room(shape_.width(), dtype_);
    store(out.slice(), own.out.slice());
    backend_->attention_products(products, own.dout.slice(), out.slice(), part);
    backend_->attention_part_backward(columns(own.gradients, 0), columns(visitor.gradients, 1),
                                      columns(visitor.gradients, 2), own.dout.slice(),
                                      own.log_sum_exp.slice(), products, columns(own.qkv, 0),
                                      columns(visitor.qkv, 1), columns(visitor.qkv, 2), part, {});
    if (!rounds_) return;
    round(own.gradients.slice());
    round(visitor.gradients.slice());
  }

  std::vector<double> collect(Tensor Rank::*member, Count columns) {
    std::vector<double> all(static_cast<std::size_t>(shape_.length * columns));
    for (const Rank& r : ranks_) {
      const Tensor& rows = r.*member;
      const Tensor result = room(columns, dtype_);
      store(result.slice(), rows.slice());
      std::vector<double> values(static_cast<std::size_t>(rows.count()));
      store(host_slice(std::span(values)), result.slice());
      for (Count i = 0; i < r.positions.count(); ++i)
        std::copy_n(values.begin() + i * columns, columns, all.begin() + r.positions[i] * columns);
    }
    return all;
  }

  AttentionShape shape_;
  int count_;
  DType dtype_;
  bool rounds_;
  Ledger ledger_;
  std::unique_ptr<Backend> backend_;
  DType statistics_;
  std::vector<Rank> ranks_;
};

double relative_error(const std::vector<double>& values, const std::vector<double>& reference) {
  double differences = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    differences += (values[i] - reference[i]) * (values[i] - reference[i]);
    squares += reference[i] * reference[i];
  }
  return std::sqrt(differences / squares);
}

}  // namespace

std::vector<ContextError> measure_context_errors(const ContextErrorOptions& options) {
  RingOfParts reference(options.shape, 1, DType::f64, false);
  reference.run();
  const std::vector<double> output = reference.output(), gradients = reference.gradients();
  fmt::print("{:<14} {:>5} {:>14} {:>14}\n", "# accumulation", "ranks", "output", "gradients");
  std::vector<ContextError> errors;
  for (const int ranks : options.ranks)
    for (const bool rounds : {false, true}) {
      RingOfParts ring(options.shape, ranks, DType::bf16, rounds);
      ring.run();
      errors.push_back({.accumulation = rounds ? "bf16" : "f32",
                        .ranks = ranks,
                        .of_output = relative_error(ring.output(), output),
                        .of_gradients = relative_error(ring.gradients(), gradients)});
      const ContextError& e = errors.back();
      fmt::print("{:<14} {:>5} {:>14.3e} {:>14.3e}\n", e.accumulation, e.ranks, e.of_output,
                 e.of_gradients);
    }
  return errors;
}

}  // namespace lockstep
