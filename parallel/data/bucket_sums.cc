#include "parallel/data/bucket_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/ops/narrow_types.h"
#include "parallel/data/compressed.h"
#include "parallel/plan/algorithms.h"

namespace lockstep {
namespace {

Count most_elements(const std::vector<Bucket>& buckets) {
  Count most = 0;
  for (const Bucket& bucket : buckets) most = std::max(most, bucket.count);
  return most;
}

}  // namespace

BucketSums::BucketSums(const Plan& plan, const Parameters& parameters,
                       const std::vector<Bucket>& buckets, Communicator& comm, Slice flat)
    : warm_up_(plan.options.exchange_warm_up) {
  const Count most = most_elements(buckets);
  for (const Bucket& bucket : buckets)
    algorithms_.push_back(&usable_algorithm(all_reduce_algorithms(), Operation::all_reduce,
                                            algorithm_of(plan, Operation::all_reduce), comm,
                                            flat.part(bucket.offset, bucket.count)));
  exchange_.emplace(plan, comm.size(), comm, flat, most);
  if (!plan.compresses_gradients()) return;
  const DType type = statistics_type(flat.dtype);
  if (type != flat.dtype) widened_ = comm.scratch({.dtype = type, .device = flat.device}, most);
  compressed_ = make_compressed_sum(exchange_from_text(plan.options.exchange), type,
                                    exchanged_buckets(parameters, buckets), comm, *flat.device);
}

void BucketSums::run(Communicator& comm, std::size_t number, Slice numbers, std::int64_t steps) {
  if (!compressed_ || steps < warm_up_)
    return exchange_->run(numbers, [&](Slice encoded) {
      all_reduce(comm, encoded, ReduceOp::sum, algorithms_[number]->name);
    });
  if (widened_.bytes() == 0) return compressed_->run(comm, number, numbers);
  const Slice wide = widened_.slice(numbers.count, statistics_type(numbers.dtype));
  numbers.device->convert(wide, numbers);
  compressed_->run(comm, number, wide);
  numbers.device->convert(numbers, wide);
}

std::vector<std::string> BucketSums::algorithms() const {
  std::vector<std::string> names;
  for (const AllReduceAlgorithm* algorithm : algorithms_) names.emplace_back(algorithm->name);
  return names;
}

std::vector<Slice> BucketSums::kept() const {
  return compressed_ ? compressed_->all_kept() : std::vector<Slice>{};
}

namespace {

// Adds the traffic of buckets, unless it is unknown.
void send_buckets(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                  const BucketUse& use, const ReplicaFacts& facts) {
  const std::vector<std::string>& algorithms = facts.algorithms;
  Traffic sum;
  bool all_rings = true;
  std::string name = algorithm_of(plan, Operation::all_reduce);
  terms.has_unknown_traffic = true;
  for (const Bucket& bucket : use.sent) {
    const auto b = static_cast<std::size_t>(
        std::ranges::find(use.buckets, bucket.offset, &Bucket::offset) - use.buckets.begin());
    if (!algorithms.empty()) name = algorithms[b];
    if (name == "auto") return;
    const AllReduceAlgorithm& algorithm =
        find_algorithm(all_reduce_algorithms(), "all_reduce", name);
    if (!algorithm.traffic) return;
    sum += algorithm.traffic({.ranks = replicas.copies,
                              .count = bucket.count,
                              .element_bytes = GradientExchange::element_bytes(plan),
                              .ranks_per_node = facts.ranks_per_node},
                             replicas.copy);
    all_rings = all_rings && name == "ring";
  }
  terms.has_unknown_traffic = false;
  terms.bytes_formula = all_rings
                            ? fmt::format("2(P-1)/P * Psi * {}",
                                          GradientExchange::element_formula(plan, replicas.copies))
                            : fmt::format("all_reduce/{}, by bucket", name);
  terms.messages_formula = all_rings ? "2(P-1) * buckets" : terms.bytes_formula;
  if (!use.sent.empty())
    terms.send(use.label, sum, GradientExchange::element_bytes(plan), terms.bytes_formula);
}

Count most_scratch_bytes(const Plan& plan, const ReplicaGroup& replicas,
                         const std::vector<Bucket>& buckets,
                         const std::vector<std::string>& algorithms) {
  const std::string named = algorithm_of(plan, Operation::all_reduce);
  Count most = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string& name = algorithms.empty() ? named : algorithms[b];
    if (name == "auto") continue;
    const auto scratch = find_algorithm(all_reduce_algorithms(), "all_reduce", name).scratch;
    if (scratch)
      most = std::max(
          most, scratch({.ranks = replicas.copies, .count = buckets[b].count}, replicas.copy));
  }
  return most * GradientExchange::element_bytes(plan);
}

}  // namespace

BucketUse use_in_every_step(const Plan& plan, const std::vector<Bucket>& buckets,
                            const ReplicaFacts& facts) {
  const int warm_up = plan.options.exchange_warm_up;
  const auto [before, taken] = facts.steps.value_or(ReplicaFacts::Steps{warm_up, warm_up + 1});
  return {.buckets = buckets,
          .sent = buckets,
          .in_warm_up = taken <= warm_up,
          .began_in_warm_up = before < warm_up,
          .overlaps = plan.options.overlap};
}

void add_bucket_sums(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                     const Parameters& parameters, const ReplicaFacts& facts, const BucketUse& use,
                     Moment moment) {
  Count scratch = 0;
  if (plan.compresses_gradients()) {
    BucketUse compressed = use;
    if (use.in_warm_up) compressed.sent.clear();
    scratch = add_compressed(terms, plan, replicas, parameters, compressed);
    if (use.in_warm_up) {
      send_buckets(terms, plan, replicas, use, facts);
      scratch = 0;
    }
    if (use.began_in_warm_up)
      scratch =
          std::max(scratch, most_scratch_bytes(plan, replicas, use.buckets, facts.algorithms));
  } else {
    send_buckets(terms, plan, replicas, use, facts);
    terms.hold({.use = MemoryUse::communication,
                .bytes = GradientExchange::memory_bytes(plan, replicas.copies,
                                                        most_elements(use.buckets))});
    scratch = most_scratch_bytes(plan, replicas, use.buckets, facts.algorithms);
  }
  if (!use.have_been_sent) scratch = 0;
  terms.hold({.use = MemoryUse::communication,
              .bytes = scratch,
              .exact = scratch == 0 || !use.overlaps,
              .moment = moment});
}

}  // namespace lockstep
