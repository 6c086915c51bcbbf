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

// Not the backend's scale(): sums may run on a communication stream, and the backend belongs to the thread
// that computes.
void multiply(Slice numbers, double factor) {
  if (!numbers.device->stores()) return;
  const auto all = [factor](auto span) {
    for (auto& x : span) x = static_cast<std::remove_reference_t<decltype(x)>>(x * factor);
  };
  if (numbers.dtype == DType::f64)
    all(host_span<double>(numbers));
  else
    all(host_span<float>(numbers));
}

}  // namespace

WholeSteps::WholeSteps(const Plan& plan)
    : warm_up_(plan.options.exchange_warm_up),
      period_(plan.options.exchange == "galore" ? plan.options.galore_period : 0) {}

bool WholeSteps::has(std::int64_t step) const {
  return step < warm_up_ || (period_ > 0 && step % period_ == 0);
}

bool WholeSteps::any_in(const ReplicaFacts::Steps& run) const {
  for (std::int64_t step = run.before; step < run.taken; ++step)
    if (has(step)) return true;
  return false;
}

ReplicaFacts::Steps WholeSteps::usual_run() const {
  const std::int64_t first = period_ > 0 ? 0 : warm_up_;
  if (period_ == 1) return {first, first + 1};
  std::int64_t last = std::max(first, warm_up_);
  if (has(last)) ++last;
  return {first, last + 1};
}

BucketSums::BucketSums(const Plan& plan, const Parameters& parameters,
                       const std::vector<Bucket>& buckets, Communicator& comm, Slice flat)
    : whole_(plan) {
  const Count most = most_elements(buckets);
  for (const Bucket& bucket : buckets)
    algorithms_.push_back(&usable_algorithm(all_reduce_algorithms(), Operation::all_reduce,
                                            algorithm_of(plan, Operation::all_reduce), comm,
                                            flat.part(bucket.offset, bucket.count)));
  exchange_.emplace(plan, comm.size(), comm, flat, most);
  if (!plan.compresses_gradients()) return;
  const DType type = statistics_type(flat.dtype);
  if (type != flat.dtype) widened_ = comm.scratch({.dtype = type, .device = flat.device}, most);
  compressed_ = make_compressed_sum(exchange_of(plan), type, exchanged_buckets(parameters, buckets),
                                    comm, *flat.device);
  if (!may_skip_kept(plan)) return;
  for (const Slice& kept : compressed_->all_kept())
    before_.push_back(comm.scratch(kept, kept.count));
}

void BucketSums::begin(double loss_scale) {
  loss_scale_ = loss_scale;
  const std::vector<Slice> now = kept();
  for (std::size_t i = 0; i < before_.size(); ++i)
    now[i].device->copy(before_[i].slice(now[i].count, now[i].dtype), now[i]);
}

void BucketSums::skip() {
  const std::vector<Slice> now = kept();
  for (std::size_t i = 0; i < before_.size(); ++i)
    now[i].device->copy(now[i], before_[i].slice(now[i].count, now[i].dtype));
}

void BucketSums::run(Communicator& comm, std::size_t number, Slice numbers, std::int64_t steps) {
  if (!compressed_ || whole_.has(steps))
    return exchange_->run(numbers, [&](Slice encoded) {
      all_reduce(comm, encoded, ReduceOp::sum, algorithms_[number]->name);
    });
  const bool is_narrow = widened_.bytes() > 0;
  const Slice wide =
      is_narrow ? widened_.slice(numbers.count, statistics_type(numbers.dtype)) : numbers;
  if (is_narrow) numbers.device->convert(wide, numbers);
  if (!before_.empty()) multiply(wide, 1 / loss_scale_);
  compressed_->run(comm, number, wide);
  if (!before_.empty()) multiply(wide, loss_scale_);
  if (is_narrow) numbers.device->convert(numbers, wide);
}

void BucketSums::take_projectors(const WholeMatrices& matrices) {
  if (compressed_)
    compressed_->take_projectors([&matrices](const std::string& name) {
      const auto place = std::ranges::find(matrices.list(), name, &Parameter::name);
      return Galore::projectors(matrices.states(),
                                static_cast<std::size_t>(place - matrices.list().begin()));
    });
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
  const WholeSteps whole(plan);
  const ReplicaFacts::Steps run = facts.steps.value_or(whole.usual_run());
  const bool is_whole = whole.has(run.taken - 1);
  return {.buckets = buckets,
          .sent = buckets,
          .is_whole = is_whole,
          .has_whole = is_whole || whole.any_in(run),
          .overlaps = plan.options.overlap};
}

void add_bucket_sums(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                     const Parameters& parameters, const ReplicaFacts& facts, const BucketUse& use,
                     Moment moment) {
  Count scratch = 0;
  if (plan.compresses_gradients()) {
    BucketUse compressed = use;
    if (use.is_whole) compressed.sent.clear();
    scratch = add_compressed(terms, plan, replicas, parameters, compressed);
    if (use.is_whole) {
      send_buckets(terms, plan, replicas, use, facts);
      scratch = 0;
    }
    if (use.has_whole)
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
