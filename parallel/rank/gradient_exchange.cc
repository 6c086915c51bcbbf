#include "parallel/rank/gradient_exchange.h"

namespace lockstep {
namespace {

DType type_of(const Plan& plan) { return *plan.options.reduce_dtype; }
// A single replica exchanges nothing.
bool encodes(const Plan& plan, int copies) {
  return copies > 1 && type_of(plan) != plan.options.dtype;
}

}  // namespace

GradientExchange::GradientExchange(const Plan& plan, int copies, Communicator& comm, Slice like,
                                   Count most)
    : type_(type_of(plan)), encodes_(encodes(plan, copies)) {
  if (encodes_) encoded_ = comm.scratch({.dtype = type_, .device = like.device}, most);
}

void GradientExchange::run(Slice gradients, const std::function<void(Slice)>& collective,
                           const std::function<Slice(Slice)>& summed) {
  if (!encodes_) return collective(gradients);
  // Exchanges of a rank follow one another, so they share the memory.
  const Slice encoded = encoded_.slice(gradients.count, type_);
  gradients.device->convert(encoded, gradients);
  collective(encoded);
  gradients.device->convert(summed(gradients), summed(encoded));
}

Count GradientExchange::element_bytes(const Plan& plan) {
  return lockstep::element_bytes(type_of(plan));
}

std::string GradientExchange::element_formula(const Plan& plan, int copies) {
  return encodes(plan, copies) ? std::to_string(element_bytes(plan)) : "beta";
}

Count GradientExchange::memory_bytes(const Plan& plan, int copies, Count most) {
  return encodes(plan, copies) ? most * element_bytes(plan) : 0;
}

}  // namespace lockstep
