// Causal attention of all heads of all sequences: whole, or in parts with some of the keys.
#include "models/ops/attention_backward.h"
#include "models/ops/attention_forward.h"

namespace lockstep::host {
namespace {

// Calls function(T{}) with the type that is computed in: 16 bits are computed in f32.
template <typename Function>
void with_computed(DType dtype, Function function) {
  dtype == DType::f64 ? function(double{}) : function(float{});
}

template <typename T>
T* at(Slice slice) {
  return reinterpret_cast<T*>(slice.data);
}

// Where a head of a sequence lies in each matrix.
HeadRows queries_of(const HeadRows& all, const AttentionPart& s, Count sequence, Count head) {
  return all.at(sequence * s.queries.count(), head * s.head_size);
}
Head head_of(const Head& all, const AttentionPart& s, Count sequence, Count head) {
  const Count column = head / (s.heads / s.kv_heads) * s.head_size, row = sequence * s.keys.count();
  return {queries_of(all.q, s, sequence, head), all.k.at(row, column), all.v.at(row, column)};
}
HeadRows dense(Slice out, const AttentionPart& s) { return {out, s.heads * s.head_size}; }

// The keys that the queries of all sequences see.
class AllVisibleKeys {
 public:
  explicit AllVisibleKeys(const AttentionPart& s) : queries_(s.queries.count()) {
    for (Count i = 0; i < queries_; ++i) seen_.push_back(s.keys.up_to(s.queries[i]));
    first_.resize(s.documents.empty() ? seen_.size() : 0);
    for (Count sequence = 0; sequence < s.sequences && !s.documents.empty(); ++sequence)
      for (Count i = 0; i < queries_; ++i)
        first_.push_back(
            s.keys.up_to(document_begin(s.documents, s.length, sequence, s.queries[i]) - 1));
  }
  VisibleKeys of(Count sequence) const {
    const bool one_for_all = first_.size() == seen_.size();
    return {first_.data() + (one_for_all ? 0 : sequence * queries_), seen_.data()};
  }

 private:
  Count queries_;
  std::vector<Count> first_, seen_;
};

template <typename T>
void attend_all(const HeadRows& out, T* log_sum_exp, const Head& all, const AttentionPart& s,
                const Dropout& dropout) {
  const AllVisibleKeys all_visible(s);
  const Count queries = s.queries.count(), block = queries_in_block(queries),
              blocks = (queries + block - 1) / block;
  with_mask<T>(dropout, [&](auto mask) {
  // The last blocks see most keys, so they come first, and threads end together.
#pragma omp parallel for schedule(dynamic)
    for (Count i = 0; i < s.sequences * s.heads * blocks; ++i) {
      const Count sequence = i / blocks / s.heads, head = i / blocks % s.heads,
                  first = (blocks - 1 - i % blocks) * block;
      attend(queries_of(out, s, sequence, head), log_sum_exp + i / blocks * queries,
             head_of(all, s, sequence, head), s, all_visible.of(sequence),
             Range{first, std::min(first + block, queries)},
             HeadMask(mask, dropout, s.length, sequence, head));
    }
  });
}

// The heads that share keys and values: of gradients, whether they are added to.
struct Sharers {
  Count sequence, first, count;
  bool adds;
};

// The sums over each head of dout * out, for those heads.
template <typename T>
void add_products(T* products, const HeadRows& dout, const HeadRows& out, const AttentionPart& s,
                  Count sequence, Count head) {
  std::vector<T> rows(static_cast<std::size_t>(2 * s.head_size));
  const HeadRows left = queries_of(dout, s, sequence, head),
                 right = queries_of(out, s, sequence, head);
  for (Count query = 0; query < s.queries.count(); ++query) {
    load_rows(rows.data(), left, query, 1, s.head_size);
    load_rows(rows.data() + s.head_size, right, query, 1, s.head_size);
    products[query] = product_of_rows(rows.data(), rows.data() + s.head_size, s.head_size);
  }
}

// The gradients of a block of keys leave the scratch.
template <typename T>
void store_keys(const HeadRows& into, Range k, T* gradients, Count size, bool adds) {
  if (adds)
    for (Count r = 0; r < k.count(); ++r)
      for (Count c = 0; c < size; ++c) gradients[r * size + c] += into.row<T>(k.first + r)[c];
  store_rows(into, k.first, gradients, k.count(), size);
}

// products[sequences, heads, queries] = D. Gradients are overwritten, or added to.
template <typename T, typename Mask>
void attend_backward_sharers(const Head& gradients, const HeadRows& dout, const T* log_sum_exp,
                             const T* products, const Head& all, const AttentionPart& s,
                             const VisibleKeys& visible, const Sharers& sharers, Mask mask,
                             const Dropout& dropout) {
  const Count size = s.head_size, queries = s.queries.count();
  const bool is_narrow = gradients.q.dtype != dtype_of<T>();
  BackwardBlocks<T> b(size, is_narrow ? sharers.count * queries * size : 0);
  const Head shared = head_of(all, s, sharers.sequence, sharers.first),
             dshared = head_of(gradients, s, sharers.sequence, sharers.first);
  const auto query_gradients = [&](Count head) -> Block<T> {
    if (is_narrow) return {b.query_gradients + (head - sharers.first) * queries * size, size};
    const HeadRows rows = queries_of(gradients.q, s, sharers.sequence, head);
    return {rows.row<T>(0), rows.stride};
  };
  const Count last = sharers.first + sharers.count;
  if (!sharers.adds)
    for (Count head = sharers.first; head < last; ++head)
      for (Count query = 0; query < queries; ++query)
        std::fill_n(query_gradients(head).data + query * query_gradients(head).stride, size, T{0});
  for (Range k; k.first < s.keys.count(); k.first = k.last) {
    k.last = std::min(k.first + backward_keys, s.keys.count());
    const Range seeing = visible.queries_of({0, queries}, k);
    load_keys(b, shared, k, size);
    for (Count head = sharers.first; head < last; ++head) {
      const Count row = (sharers.sequence * s.heads + head) * queries;
      const Block<T> dq = query_gradients(head);
      for (Range q{seeing.first, 0}; q.first < seeing.last; q.first = q.last) {
        q.last = std::min(q.first + backward_queries, seeing.last);
        attend_backward(b, {dq.data + q.first * dq.stride, dq.stride},
                        queries_of(dout, s, sharers.sequence, head), log_sum_exp + row,
                        products + row, queries_of(all.q, s, sharers.sequence, head), s, visible, q,
                        k, HeadMask(mask, dropout, s.length, sharers.sequence, head));
      }
    }
    store_keys(dshared.k, k, b.key_gradients, size, sharers.adds);
    store_keys(dshared.v, k, b.value_gradients, size, sharers.adds);
  }
  if (is_narrow)
    for (Count head = sharers.first; head < last; ++head)
      store_rows(queries_of(gradients.q, s, sharers.sequence, head), 0, query_gradients(head).data,
                 queries, size);
}

// One thread handles the heads that share keys and values, so that sums have a fixed order.
template <typename T>
void attend_backward_all(const Head& gradients, const HeadRows& dout, const T* log_sum_exp,
                         const T* products, const Head& all, const AttentionPart& s,
                         const Dropout& dropout, bool adds) {
  const AllVisibleKeys all_visible(s);
  const Count sharers = s.heads / s.kv_heads;
  with_mask<T>(dropout, [&](auto mask) {
#pragma omp parallel for schedule(dynamic)
    for (Count i = 0; i < s.sequences * s.kv_heads; ++i) {
      const Count sequence = i / s.kv_heads;
      attend_backward_sharers(gradients, dout, log_sum_exp, products, all, s,
                              all_visible.of(sequence),
                              {sequence, i % s.kv_heads * sharers, sharers, adds}, mask, dropout);
    }
  });
}

// Queries, keys and values next to each other.
Head side_by_side(Slice qkv, const AttentionShape& s) {
  const HeadRows rows(qkv, s.qkv_width());
  return {rows, rows.at(0, s.width()), rows.at(0, s.width() + s.kv_width())};
}
Head separate(const Matrix& q, const Matrix& k, const Matrix& v) {
  return {HeadRows(q), HeadRows(k), HeadRows(v)};
}

AttentionPart whole(const AttentionShape& s) {
  const Positions all = Positions::all(s.length);
  return {s.sequences, s.heads, s.head_size, s.kv_heads, all, all, s.length, s.documents};
}

}  // namespace

void attention(Slice out, Slice log_sum_exp, Slice qkv, const AttentionShape& s,
               const Dropout& dropout) {
  with_computed(qkv.dtype, [&]<typename T>(T) {
    const AttentionPart part = whole(s);
    attend_all(dense(out, part), at<T>(log_sum_exp), side_by_side(qkv, s), part, dropout);
  });
}

void attention_backward(Slice dqkv, Slice dout, Slice out, Slice log_sum_exp, Slice qkv,
                        const AttentionShape& s, const Dropout& dropout) {
  with_computed(qkv.dtype, [&]<typename T>(T) {
    const AttentionPart part = whole(s);
    std::vector<T> products(static_cast<std::size_t>(s.sequences * s.heads * s.length));
    attention_products(host_slice(std::span(products)), dout, out, part);
    attend_backward_all<T>(side_by_side(dqkv, s), dense(dout, part), at<T>(log_sum_exp),
                           products.data(), side_by_side(qkv, s), part, dropout, false);
  });
}

void attention_part(Slice out, Slice log_sum_exp, const Matrix& q, const Matrix& k, const Matrix& v,
                    const AttentionPart& s, const Dropout& dropout) {
  with_computed(q.slice.dtype, [&]<typename T>(T) {
    attend_all(dense(out, s), at<T>(log_sum_exp), separate(q, k, v), s, dropout);
  });
}

void attention_products(Slice products, Slice dout, Slice out, const AttentionPart& s) {
  with_computed(dout.dtype, [&]<typename T>(T) {
#pragma omp parallel for schedule(static)
    for (Count i = 0; i < s.sequences * s.heads; ++i)
      add_products(at<T>(products) + i * s.queries.count(), dense(dout, s), dense(out, s), s,
                   i / s.heads, i % s.heads);
  });
}

void attention_part_backward(const Matrix& dq, const Matrix& dk, const Matrix& dv, Slice dout,
                             Slice log_sum_exp, Slice products, const Matrix& q, const Matrix& k,
                             const Matrix& v, const AttentionPart& s, const Dropout& dropout) {
  with_computed(q.slice.dtype, [&]<typename T>(T) {
    attend_backward_all<T>(separate(dq, dk, dv), dense(dout, s), at<T>(log_sum_exp),
                           at<T>(products), separate(q, k, v), s, dropout, true);
  });
}

Count attention_scratch_bytes(const AttentionShape& s, DType dtype) {
  Count bytes = 0;
  with_computed(dtype, [&]<typename T>(T) {
    const bool is_narrow = dtype != dtype_of<T>();
    const Count gradients = is_narrow ? s.heads / s.kv_heads * s.length * s.head_size : 0;
    bytes =
        static_cast<Count>(sizeof(T)) * std::max(ForwardBlocks<T>::count(s.head_size),
                                                 BackwardBlocks<T>::count(s.head_size, gradients));
  });
  return bytes;
}

}  // namespace lockstep::host
