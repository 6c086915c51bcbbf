#include "models/ops/kernel_call.h"

#include <algorithm>

namespace lockstep {

double bytes_of(Slice slice) { return static_cast<double>(slice.bytes()); }
double bytes_of(const Matrix& matrix) {
  return static_cast<double>(matrix.rows * matrix.columns * element_bytes(matrix.slice.dtype));
}

KernelCall copying(std::string_view name, const Matrices& into, const Matrices& from, double beta) {
  const auto number = static_cast<double>(into.number);
  return {.name = name,
          .dtype = into.first.slice.dtype,
          .bytes = number * ((beta == 0 ? 1 : 2) * bytes_of(into.first) + bytes_of(from.first)),
          .shape = {into.elements(), 1, 1}};
}

double attention_product(const AttentionPart& part) {
  const Count pairs = part.heads * causal_pairs(part.queries, part.keys, part.documents,
                                                part.length, part.sequences);
  return 2 * static_cast<double>(pairs) * static_cast<double>(part.head_size);
}
double attention_product(const AttentionShape& s) {
  if (!s.documents.empty()) {
    const Positions all = Positions::all(s.length);
    return attention_product(AttentionPart{s.sequences, s.heads, s.head_size, s.kv_heads, all, all,
                                           s.length, s.documents});
  }
  const auto pairs = static_cast<double>(s.sequences * s.heads * s.length * (s.length + 1) / 2);
  return 2 * pairs * static_cast<double>(s.head_size);
}

KernelCall multiplying(std::string_view name, const Matrix& a, const Matrix& b, const Matrix& c,
                       double more) {
  const Count k = a.transposed ? a.rows : a.columns;
  return {.name = name,
          .dtype = a.slice.dtype,
          .operations = 2 * static_cast<double>(c.rows * c.columns) * static_cast<double>(k),
          .bytes = bytes_of(a.slice) + bytes_of(b.slice) + bytes_of(c.slice) + more,
          .shape = {c.rows, c.columns, k},
          .is_product = true};
}

std::string_view product_name(const Matrix& a, const Matrix& b, double beta) {
  if (a.transposed && b.transposed) return beta == 0 ? "gemm_tt" : "gemm_tt_add";
  if (a.transposed) return beta == 0 ? "gemm_tn" : "gemm_tn_add";
  if (b.transposed) return beta == 0 ? "gemm_nt" : "gemm_nt_add";
  return beta == 0 ? "gemm" : "gemm_add";
}

KernelCall moving(std::string_view name, std::initializer_list<Slice> slices) {
  KernelCall call{.name = name};
  for (const Slice& slice : slices) {
    call.bytes += bytes_of(slice);
    if (slice.count <= call.shape[0]) continue;
    call.shape[0] = slice.count;
    call.dtype = slice.dtype;
  }
  return call;
}

KernelCall answering(std::string_view name, std::initializer_list<Slice> slices) {
  KernelCall call = moving(name, slices);
  call.waits = true;
  return call;
}

KernelCall attending(std::string_view name, double operations, const AttentionPart& part,
                     DType dtype) {
  return {.name = name,
          .dtype = dtype,
          .operations = operations,
          .shape = {part.sequences * part.heads, part.queries.count(), part.head_size},
          .is_attention = true};
}
KernelCall attending(std::string_view name, double operations, const AttentionShape& s,
                     DType dtype) {
  return {.name = name,
          .dtype = dtype,
          .operations = operations,
          .shape = {s.sequences * s.heads, s.length, s.head_size},
          .is_attention = true};
}

}  // namespace lockstep
