// Causal attention of all heads of all sequences: whole, or in parts with some of the keys.
#include "models/ops/attention_head.h"

namespace lockstep::host {
namespace {

// Where a head of a sequence lies in each matrix.
template <typename T>
Head<T> head_of(const Head<T>& all, const AttentionPart& s, Count sequence, Count head) {
  const Count kv_head = head / (s.heads / s.kv_heads), keys = s.keys.count();
  const auto at = [&](Strided<T> matrix, Count row, Count column) {
    return Strided<T>{matrix.row(row) + column, matrix.stride};
  };
  return {at(all.q, sequence * s.queries.count(), head * s.head_size),
          at(all.k, sequence * keys, kv_head * s.head_size),
          at(all.v, sequence * keys, kv_head * s.head_size)};
}

template <typename T>
Strided<T> head_of(T* out, const AttentionPart& s, Count sequence, Count head) {
  const Count width = s.heads * s.head_size;
  return {out + sequence * s.queries.count() * width + head * s.head_size, width};
}

template <typename T, typename Visible>
void attend_all(T* out, T* log_sum_exp, const Head<const T>& all, const AttentionPart& s,
                const Visible& visible, const Dropout& dropout) {
  with_mask<T>(dropout, [&](auto mask) {
#pragma omp parallel for schedule(static)
    for (Count i = 0; i < s.sequences * s.heads; ++i) {
      const Count sequence = i / s.heads, head = i % s.heads;
      attend(head_of(out, s, sequence, head), log_sum_exp + i * visible.queries(),
             head_of(all, s, sequence, head), s.head_size, visible,
             HeadMask(mask, dropout, s.length, sequence, head));
    }
  });
}

// One thread handles the heads that share keys and values, one after another, so that the sums of
// their gradients have a fixed order. product_of(i, query) is D of head i; beta is for all gradients.
template <typename T, typename Visible, typename Product>
void attend_backward_all(const Head<T>& gradients, const T* dout, const T* log_sum_exp,
                         Product product_of, const Head<const T>& all, const AttentionPart& s,
                         const Visible& visible, const Dropout& dropout, T beta) {
  const Count sharers = s.heads / s.kv_heads;
  with_mask<T>(dropout, [&](auto mask) {
#pragma omp parallel for schedule(static)
    for (Count i = 0; i < s.sequences * s.kv_heads; ++i) {
      const Count sequence = i / s.kv_heads, first = i % s.kv_heads * sharers;
      for (Count head = first; head < first + sharers; ++head)
        attend_backward(
            head_of(gradients, s, sequence, head), head_of(dout, s, sequence, head),
            log_sum_exp + (sequence * s.heads + head) * visible.queries(),
            [&](Count query) { return product_of(sequence, head, query); },
            head_of(all, s, sequence, head), s.head_size, visible,
            HeadMask(mask, dropout, s.length, sequence, head), beta, head == first ? beta : T{1});
    }
  });
}

// Queries, keys and values next to each other.
template <typename T>
Head<T> side_by_side(T* qkv, const AttentionShape& s) {
  const Count stride = s.qkv_width();
  return {{qkv, stride}, {qkv + s.width(), stride}, {qkv + s.width() + s.kv_width(), stride}};
}

AttentionPart whole(const AttentionShape& s) {
  const Positions all = Positions::all(s.length);
  return {s.sequences, s.heads, s.head_size, s.kv_heads, all, all, s.length};
}

}  // namespace

template <typename T>
void attention(T* out, T* log_sum_exp, const T* qkv, const AttentionShape& s,
               const Dropout& dropout) {
  attend_all(out, log_sum_exp, side_by_side(qkv, s), whole(s), Whole{s.length}, dropout);
}

template <typename T>
void attention_backward(T* dqkv, const T* dout, const T* out, const T* log_sum_exp, const T* qkv,
                        const AttentionShape& s, const Dropout& dropout) {
  const auto product_of = [=](Count sequence, Count head, Count query) {
    const Count place = (sequence * s.length + query) * s.width() + head * s.head_size;
    return product_of_rows(dout + place, out + place, s.head_size);
  };
  attend_backward_all(side_by_side(dqkv, s), dout, log_sum_exp, product_of, side_by_side(qkv, s),
                      whole(s), Whole{s.length}, dropout, T{0});
}

template <typename T>
void attention_part(T* out, T* log_sum_exp, Strided<const T> q, Strided<const T> k,
                    Strided<const T> v, const AttentionPart& s, const Dropout& dropout) {
  attend_all(out, log_sum_exp, {q, k, v}, s, ByPosition{s.queries, s.keys}, dropout);
}

template <typename T>
void attention_part_backward(Strided<T> dq, Strided<T> dk, Strided<T> dv, const T* dout,
                             const T* log_sum_exp, const T* products, Strided<const T> q,
                             Strided<const T> k, Strided<const T> v, const AttentionPart& s,
                             const Dropout& dropout) {
  const auto product_of = [&](Count sequence, Count head, Count query) {
    return products[(sequence * s.heads + head) * s.queries.count() + query];
  };
  attend_backward_all({dq, dk, dv}, dout, log_sum_exp, product_of, {q, k, v}, s,
                      ByPosition{s.queries, s.keys}, dropout, T{1});
}

Count attention_scratch_bytes(const AttentionShape& s, DType dtype) {
  return 2 * attention_block * s.length * element_bytes(dtype);
}

template void attention(float*, float*, const float*, const AttentionShape&, const Dropout&);
template void attention(double*, double*, const double*, const AttentionShape&, const Dropout&);
template void attention_backward(float*, const float*, const float*, const float*, const float*,
                                 const AttentionShape&, const Dropout&);
template void attention_backward(double*, const double*, const double*, const double*,
                                 const double*, const AttentionShape&, const Dropout&);
template void attention_part(float*, float*, Strided<const float>, Strided<const float>,
                             Strided<const float>, const AttentionPart&, const Dropout&);
template void attention_part(double*, double*, Strided<const double>, Strided<const double>,
                             Strided<const double>, const AttentionPart&, const Dropout&);
template void attention_part_backward(Strided<float>, Strided<float>, Strided<float>, const float*,
                                      const float*, const float*, Strided<const float>,
                                      Strided<const float>, Strided<const float>,
                                      const AttentionPart&, const Dropout&);
template void attention_part_backward(Strided<double>, Strided<double>, Strided<double>,
                                      const double*, const double*, const double*,
                                      Strided<const double>, Strided<const double>,
                                      Strided<const double>, const AttentionPart&, const Dropout&);

}  // namespace lockstep::host
