#include "parallel/context/attention.h"

#include "models/ops/narrow_types.h"

namespace lockstep {

using Use = ContextRanks::Use;

struct ContextAttention::Sizes {
  Count length, rows;     // of the group: tokens of a sequence, and of all
  Count heads, kv_heads;  // this rank's share
  Count width, kv_width;  // of those heads
  Dropout dropout;
  AttentionPart part;  // without keys

  Count qkv_width() const { return width + 2 * kv_width; }
  Count statistics() const { return rows * heads; }
  Matrix queries(Slice qkv) const { return Matrix(qkv, rows, qkv_width()).columns_from(0, width); }
  Matrix keys_values(Slice qkv) const {
    return Matrix(qkv, rows, qkv_width()).columns_from(width, 2 * kv_width);
  }
  Matrix keys(const Matrix& block) const { return block.columns_from(0, kv_width); }
  Matrix values(const Matrix& block) const { return block.columns_from(kv_width, kv_width); }
  // Returns the part for a group's queries and another group's keys.
  AttentionPart with_keys(TokenLayout layout, int group, Count length_of_sequence) const {
    AttentionPart with = part;
    layout.rank = group;
    with.keys = layout.positions_of_group(length_of_sequence);
    return with;
  }
};

namespace {

Count pairs_of(const AttentionPart& part) {
  return part.heads *
         causal_pairs(part.queries, part.keys, part.documents, part.length, part.sequences);
}

// The given columns of rows first .. first + count - 1 of every sequence, which has `length` rows.
Matrices rows_of_each(const Matrix& all, Count first_column, Count columns, Count length,
                      Count first, Count count) {
  return {all.columns_from(first_column, columns).rows_from(first, count), all.rows / length,
          length * all.stride};
}

}  // namespace

// Each row has the queries, and maybe the keys and values, of some heads.
struct ContextAttention::HeadRows {
  Matrix matrix;
  Count heads, kv_heads, head_size;
  bool with_kv;
  Count length;  // rows of each sequence

  HeadShare all() const {
    return {.first = 0, .count = heads, .first_kv = 0, .kv_count = kv_heads};
  }
  // The columns of some heads, in some rows of every sequence.
  std::vector<Matrices> columns(const HeadShare& share, Range rows) const {
    const auto of_heads = [&](Count first, Count count) {
      return rows_of_each(matrix, first * head_size, count * head_size, length, rows.first,
                          rows.count);
    };
    std::vector<Matrices> list = {of_heads(share.first, share.count)};
    for (const Count begin : {heads, heads + kv_heads})
      if (with_kv) list.push_back(of_heads(begin + share.first_kv, share.kv_count));
    return list;
  }
};

ContextAttention::ContextAttention(AttentionParts parts, ContextRanks& ranks)
    : SelfAttention(std::move(parts)), ranks_(ranks) {}

ContextAttention::Sizes ContextAttention::sizes(const Rows& rows) const {
  const AttentionShape own = shape(rows);
  const HeadShare share = ranks_.split().heads().share(own.heads, own.kv_heads);
  const Count length = rows.length * ranks_.split().ranks_of_group();
  Dropout dropout = probability_mask(rows);
  dropout.first_head += share.first;
  return {.length = length,
          .rows = rows.sequences * length,
          .heads = share.count,
          .kv_heads = share.kv_count,
          .width = share.count * own.head_size,
          .kv_width = share.kv_count * own.head_size,
          .dropout = dropout,
          .part = {.sequences = rows.sequences,
                   .heads = share.count,
                   .head_size = own.head_size,
                   .kv_heads = share.kv_count,
                   .queries = rows.layout.positions_of_group(rows.whole_length()),
                   .keys = {},
                   .length = rows.whole_length(),
                   .documents = rows.documents}};
}

ContextAttention::HeadRows ContextAttention::own_heads(Slice own, const Rows& rows,
                                                       bool with_kv) const {
  const AttentionShape all = shape(rows);
  return {.matrix = {own, rows.count(), with_kv ? all.qkv_width() : all.width()},
          .heads = all.heads,
          .kv_heads = all.kv_heads,
          .head_size = all.head_size,
          .with_kv = with_kv,
          .length = rows.length};
}

ContextAttention::HeadRows ContextAttention::group_heads(Slice group, const Rows& rows,
                                                         bool with_kv) const {
  const Sizes s = sizes(rows);
  return {.matrix = {group, s.rows, with_kv ? s.qkv_width() : s.width},
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_size = shape(rows).head_size,
          .with_kv = with_kv,
          .length = s.length};
}

void ContextAttention::scatter_heads(Backend& backend, Slice group, Slice own, const Rows& rows,
                                     bool with_kv) const {
  const HeadRows from = own_heads(own, rows, with_kv), into = group_heads(group, rows, with_kv);
  Ulysses& ulysses = ranks_.ulysses();
  ulysses.exchange(
      backend, own.dtype,
      [&](int rank) {
        return from.columns(ulysses.share_of(rank, from.heads, from.kv_heads), {0, rows.length});
      },
      [&](int rank) {
        std::vector<Ulysses::Arriving> list;
        for (const Matrices& matrices : into.columns(into.all(), {rank * rows.length, rows.length}))
          list.push_back({.matrices = matrices});
        return list;
      });
  ulysses.announce(own, group);
}

void ContextAttention::gather_heads(Backend& backend, Slice own, Slice group, const Rows& rows,
                                    bool with_kv) const {
  const HeadRows from = group_heads(group, rows, with_kv), into = own_heads(own, rows, with_kv);
  Ulysses& ulysses = ranks_.ulysses();
  ulysses.exchange(
      backend, own.dtype,
      [&](int rank) {
        return from.columns(from.all(), {rank * rows.length, rows.length});
      },
      [&](int rank) {
        const HeadShare share = ulysses.share_of(rank, into.heads, into.kv_heads);
        // Ranks that share a key/value head each have a part of its gradient.
        const bool adds =
            rank > 0 &&
            ulysses.share_of(rank - 1, into.heads, into.kv_heads).first_kv == share.first_kv;
        std::vector<Ulysses::Arriving> list;
        for (const Matrices& matrices : into.columns(share, {0, rows.length})) {
          const bool is_query = list.empty();
          list.push_back({.matrices = matrices, .beta = adds && !is_query ? 1.0 : 0.0});
        }
        return list;
      });
  ulysses.announce(group, own);
}

void ContextAttention::scatter_products(Backend& backend, Slice group, Slice own,
                                        const Rows& rows) const {
  const AttentionShape all = shape(rows);
  const Sizes s = sizes(rows);
  const Matrix from(own, rows.sequences * all.heads, rows.length);
  const Matrix into(group, rows.sequences * s.heads, s.length);
  Ulysses& ulysses = ranks_.ulysses();
  ulysses.exchange(
      backend, own.dtype,
      [&](int rank) {
        const HeadShare share = ulysses.share_of(rank, all.heads, all.kv_heads);
        return std::vector<Matrices>{
            rows_of_each(from, 0, rows.length, all.heads, share.first, share.count)};
      },
      [&](int rank) {
        return std::vector<Ulysses::Arriving>{
            {.matrices = rows_of_each(into, rank * rows.length, rows.length, s.heads, 0, s.heads)}};
      });
  ulysses.announce(own, group);
}

void ContextAttention::multiply(Backend& backend, Operands& operands, DType dtype, const Rows& rows,
                                Ledger& ledger) const {
  if (ranks_.split().ranks_of_group() == 1)
    return SelfAttention::multiply(backend, operands, dtype, rows, ledger);
  const Sizes s = sizes(rows);
  ensure(operands.qkv, {s.rows, s.qkv_width()}, dtype, ledger, MemoryUse::activations);
  const Slice own = ranks_.room(Use::own_qkv, rows.count() * shape(rows).qkv_width(), dtype);
  multiply_into(backend, own, operands, rows);
  scatter_heads(backend, operands.qkv.slice(), own, rows, true);
}

void ContextAttention::attend_forward(Backend& backend, Output& output, const Operands& operands,
                                      const Rows& rows, Ledger& ledger) const {
  const Sizes s = sizes(rows);
  const Slice qkv = operands.qkv.slice();
  const DType statistics = statistics_type(qkv.dtype);
  ensure(output.log_sum_exp, {rows.sequences, s.heads, s.length}, statistics, ledger,
         MemoryUse::activations);
  ensure(output.out, {rows.count(), shape(rows).width()}, qkv.dtype, ledger,
         MemoryUse::activations);
  const bool exchanges_heads = ranks_.split().ranks_of_group() > 1;
  const bool in_place = !exchanges_heads && statistics == qkv.dtype;
  const Slice log_sum_exp = output.log_sum_exp.slice();
  const Slice out =
      in_place ? output.out.slice() : ranks_.room(Use::out, s.rows * s.width, statistics);
  ranks_.key_values().forward(backend, s.keys_values(qkv), [&](int group, const Matrix& block) {
    const AttentionPart part = s.with_keys(rows.layout, group, rows.whole_length());
    const Count pairs = pairs_of(part);
    ranks_.count_pairs(pairs);
    if (group == ranks_.split().group())
      return backend.attention_part(out, log_sum_exp, s.queries(qkv), s.keys(block),
                                    s.values(block), part, s.dropout);
    if (causal_pairs(part.queries, part.keys) == 0) return;
    // Memory does not depend on where documents end.
    const Slice block_out = ranks_.room(Use::block_out, s.rows * s.width, statistics);
    const Slice block_sums = ranks_.room(Use::block_log_sum_exp, s.statistics(), statistics);
    if (pairs == 0) return;
    backend.attention_part(block_out, block_sums, s.queries(qkv), s.keys(block), s.values(block),
                           part, s.dropout);
    backend.merge_attention(out, log_sum_exp, block_out, block_sums, part);
  });
  if (exchanges_heads)
    gather_heads(backend, output.out.slice(), out, rows, false);
  else if (!in_place)
    out.device->convert(output.out.slice(), out);
}

void ContextAttention::attend_backward(Backend& backend, Slice dqkv, Slice own_dout,
                                       const Operands& operands, const Output& output,
                                       const Rows& rows) const {
  const Sizes s = sizes(rows);
  const Slice qkv = operands.qkv.slice();
  const DType statistics = statistics_type(qkv.dtype);
  const bool exchanges_heads = ranks_.split().ranks_of_group() > 1;

  const AttentionShape all = shape(rows);
  const Positions here = rows.positions();
  Slice dout = own_dout;
  Slice products = ranks_.room(Use::own_products, rows.count() * all.heads, statistics);
  backend.attention_products(products, own_dout, output.out.slice(),
                             {.sequences = rows.sequences,
                              .heads = all.heads,
                              .head_size = all.head_size,
                              .kv_heads = all.kv_heads,
                              .queries = here,
                              .keys = here,
                              .length = rows.whole_length()});
  if (exchanges_heads) {
    dout = ranks_.room(Use::dout, s.rows * s.width, own_dout.dtype);
    scatter_heads(backend, dout, own_dout, rows, false);
    const Slice own_products = products;
    products = ranks_.room(Use::products, s.statistics(), statistics);
    scatter_products(backend, products, own_products, rows);
  }

  const bool in_place = !exchanges_heads && statistics == dqkv.dtype;
  const Slice gradients =
      in_place ? dqkv : ranks_.room(Use::dqkv, s.rows * s.qkv_width(), statistics);
  gradients.device->zero(gradients);
  ranks_.key_values().backward(
      backend, s.keys_values(qkv), s.keys_values(gradients),
      [&](int group, const Matrix& block, const Matrix& gradient) {
        const AttentionPart part = s.with_keys(rows.layout, group, rows.whole_length());
        if (pairs_of(part) == 0) return;
        backend.attention_part_backward(s.queries(gradients), s.keys(gradient), s.values(gradient),
                                        dout, output.log_sum_exp.slice(), products, s.queries(qkv),
                                        s.keys(block), s.values(block), part, s.dropout);
      });
  if (exchanges_heads)
    gather_heads(backend, dqkv, gradients, rows, true);
  else if (!in_place)
    gradients.device->convert(dqkv, gradients);
}

}  // namespace lockstep
