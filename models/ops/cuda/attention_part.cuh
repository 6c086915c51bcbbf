// Shared by the kernels of partial attention without tensor cores.
#pragma once

#include "models/ops/cuda/attention_operands.cuh"
#include "models/ops/cuda/attention_plain.cuh"

namespace lockstep::cuda {

template <typename W>
struct PartCall {
  AttentionPart part;
  host::DropoutMask<W> mask;
  bool masks;
  Count first_row, first_head, all_heads, queries, keys;
  W scale;
  FirstKeys first_keys;  // of all sequences

  PartCall(const AttentionPart& p, const std::int32_t* first, const Dropout& d)
      : part(p),
        mask(d),
        masks(d.rate > 0),
        first_row(d.first_row),
        first_head(d.first_head),
        all_heads(d.all_heads),
        queries(p.queries.count()),
        keys(p.keys.count()),
        scale(W{1} / std::sqrt(static_cast<W>(p.head_size))),
        first_keys{first, queries} {}

  __device__ W dropped(W x, Count sequence, Count head, Count query_position,
                       Count key_position) const {
    if (!masks) return x;
    const Count row = first_row + sequence * part.length + query_position;
    return mask(x, (row * all_heads + first_head + head) * part.length + key_position);
  }
  __device__ Count kv_column(Count head) const {
    return head / (part.heads / part.kv_heads) * part.head_size;
  }
  // How many keys a query sees; 0 for a query that does not exist.
  __device__ Count seen_by(Count query) const {
    return query < queries ? part.keys.up_to(part.queries[query]) : 0;
  }
};

}  // namespace lockstep::cuda
