// One operation of a backend, which reads and writes tags by rules. While it lives, operations of
// the device belong to it.
#pragma once

#include "parallel/tags/tag_state.h"

namespace lockstep {

class TagUse {
 public:
  TagUse(TagState& state, const char* operation) : state_(state) {
    state.begin_operation(operation);
  }
  ~TagUse() { TagState::resume(); }
  TagUse(const TagUse&) = delete;

  template <typename Operand>
  Tag any(const Operand& operand, const char* role) {
    return state_.read(operand, role);
  }
  // An operation that is not linear in an operand needs the complete sum.
  template <typename Operand>
  Tag whole(const Operand& operand, const char* role) {
    const Tag tag = state_.read(operand, role);
    state_.refuse(tag, role, [](const TagAxis&, Along along) { return along == Along::partial; });
    return tag;
  }
  // Reads an operand of an operation on whole rows.
  Tag whole_rows(Slice slice, const char* role) {
    const Tag tag = whole(slice, role);
    state_.refuse(tag, role, [](const TagAxis&, Along along) { return along == Along::columns; });
    return tag;
  }
  Tag sum(const Tag& a, const Tag& b, const char* what) {
    return state_.combine(sum_of, a, b, what);
  }
  Tag product(const Tag& a, const Tag& b, const char* what) {
    return state_.combine(product_of, a, b, what);
  }
  Tag gemm(const Matrix& a, const Matrix& b) {
    return state_.combine(gemm_of, any(a, "a"), any(b, "b"), "the product");
  }
  Tag gemm_bias(const Matrix& a, const Matrix& b, Slice base, Slice bias) {
    const Tag product = sum(gemm(a, b), any(bias, "bias"), "the product + bias");
    return base.count > 0 ? sum(product, any(base, "base"), "the product + base") : product;
  }
  Tag row_sum(Tag tag) {
    for (Along& along : tag.along) along = row_sum_of(along);
    return tag;
  }
  void write(Slice slice, const Tag& tag) { state_.write(slice, tag); }
  void add(Slice slice, const Tag& tag) {
    Tag made = tag;
    made.made_by = "";
    state_.add(slice, made);
  }
  void write_or_add(Slice slice, const Tag& tag, double beta) {
    beta == 0 ? write(slice, tag) : add(slice, tag);
  }

 private:
  TagState& state_;
};

}  // namespace lockstep
