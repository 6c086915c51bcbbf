#include "parallel/data/compressed.h"

#include <algorithm>

#include "models/ops/narrow_types.h"

namespace lockstep {

ExchangeMethod exchange_of(const Plan& plan) {
  ExchangeMethod method = exchange_from_text(plan.options.exchange);
  method.projection = optimizer_settings(plan.options).galore;
  return method;
}

bool may_skip_kept(const Plan& plan) {
  return plan.compresses_gradients() && exchange_of(plan).has_feedback() &&
         loss_scaling(plan.options) != "none";
}

std::vector<ExchangedBucket> exchanged_buckets(const Parameters& parameters,
                                               const std::vector<Bucket>& buckets) {
  std::vector<ExchangedBucket> all;
  for (const Bucket& bucket : buckets) {
    ExchangedBucket& exchanged = all.emplace_back();
    exchanged.range = {bucket.offset, bucket.count};
    for (int i = bucket.first; i <= bucket.last; ++i) {
      exchanged.parameters.push_back(parameters.list()[static_cast<std::size_t>(i)]);
      exchanged.parameters.back().offset -= bucket.offset;
    }
  }
  return all;
}

Count add_compressed(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                     const Parameters& parameters, const BucketUse& use) {
  const ExchangeMethod method = exchange_of(plan);
  const DType dtype = plan.options.dtype, type = statistics_type(dtype);
  const std::vector<ExchangedBucket> buckets = exchanged_buckets(parameters, use.buckets);
  Traffic sum;
  for (const ExchangedBucket& bucket : exchanged_buckets(parameters, use.sent))
    sum += exchange_traffic(method, type, bucket, replicas.copies, replicas.copy);
  Count scratch = 0, largest = 0;
  for (const ExchangedBucket& bucket : buckets) {
    largest = std::max(largest, bucket.range.count);
    scratch = std::max(
        scratch, exchange_scratch_bytes(method, type, bucket, replicas.copies, replicas.copy));
  }
  terms.bytes_formula = exchange_formula(method);
  terms.messages_formula = plan.options.exchange + " messages * buckets";
  if (!use.sent.empty()) terms.send(use.label, sum, 1, terms.bytes_formula);
  const auto [kept, work] = exchange_memory(method, type, buckets, replicas.copies, replicas.copy);
  const Count copies = may_skip_kept(plan) ? 2 : 1;
  terms.hold(
      {.use = MemoryUse::communication,
       .bytes = copies * kept + work + (type == dtype ? 0 : largest * element_bytes(type)),
       .formula = "what " + method.name + (copies == 1 ? " keeps" : " keeps, and its copy")});
  return scratch;
}

}  // namespace lockstep
