// One call of a kernel: its name, its arithmetic, the memory it accesses and its shape.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "models/backend.h"

namespace lockstep {

struct KernelCall {
  // The function's, with the transposed operands of a product ("gemm_nt") and "_add" if it adds to
  // its result.
  std::string_view name;
  DType dtype = DType::f32;
  double operations = 0;  // multiplications and additions
  double bytes = 0;       // of memory, each operand accessed once
  // Products: rows, columns, depth. Attention: sequences times heads, queries, head size. Others:
  // elements of the largest operand.
  std::array<Count, 3> shape = {1, 1, 1};
  bool is_attention = false;
  bool is_product = false;  // of two matrices
  // Needs the host, as for a number that it returns: on a GPU, all work before it is then done.
  bool waits = false;
};

double bytes_of(Slice slice);
double bytes_of(const Matrix& matrix);
// An operation that accesses each of these slices once.
KernelCall moving(std::string_view name, std::initializer_list<Slice> slices);
// The same, if it returns a number.
KernelCall answering(std::string_view name, std::initializer_list<Slice> slices);
// into = from, for as many matrices as there are.
KernelCall copying(std::string_view name, const Matrices& into, const Matrices& from, double beta);
// c = a b. `more`: bytes of other operands than these.
KernelCall multiplying(std::string_view name, const Matrix& a, const Matrix& b, const Matrix& c,
                       double more);
// gemm with the operands that are transposed.
std::string_view product_name(const Matrix& a, const Matrix& b, double beta);
KernelCall attending(std::string_view name, double operations, const AttentionPart& part,
                     DType dtype);
KernelCall attending(std::string_view name, double operations, const AttentionShape& shape,
                     DType dtype);
// Operations of one product of each query with all keys before it: a multiplication and an addition
// for each element.
double attention_product(const AttentionPart& part);
double attention_product(const AttentionShape& shape);

}  // namespace lockstep
