#include "parallel/fuzz/invariants.h"

#include <fmt/format.h>

#include <set>

#include "parallel/data/bucket.h"
#include "parallel/rank/rank_model.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {
namespace {

void check_buckets(CaseComparison& comparison, const TrainOptions& options,
                   const Parameters& parameters) {
  const std::vector<Bucket> buckets =
      make_buckets(parameters, options.first_bucket_bytes, options.bucket_bytes);
  const Count element = element_bytes(parameters.dtype());
  int next = static_cast<int>(parameters.list().size()) - 1;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    Count count = 0;
    for (int i = bucket.first; i <= bucket.last; ++i)
      count += parameters.list()[static_cast<std::size_t>(i)].count;
    const Count taken_last = parameters.list()[static_cast<std::size_t>(bucket.first)].count;
    const Count limit = b == 0 ? options.first_bucket_bytes : options.bucket_bytes;
    comparison.require_that(
        bucket.last == next && bucket.count == count,
        fmt::format("bucket {} does not hold the tensors before bucket {}", b, b - 1));
    comparison.require_that(count * element >= limit || bucket.first == 0,
                            fmt::format("bucket {} of {} bytes is closed before its limit, {}", b,
                                        count * element, limit));
    comparison.require_that((count - taken_last) * element < limit,
                            fmt::format("bucket {} of {} bytes had reached its limit, {}, without "
                                        "its last tensor",
                                        b, count * element, limit));
    next = bucket.first - 1;
  }
  comparison.require_that(next == -1, "some tensors are in no bucket");
}

// Checks the order of one micro-batch.
void check_order(CaseComparison& comparison, const std::vector<UnitEvent>& order, int most) {
  std::set<int> gathered;
  for (const UnitEvent& event : order) {
    const bool is_gathered = gathered.contains(event.unit);
    switch (event.kind) {
      case UnitEvent::Kind::gather:
        comparison.require_that(!is_gathered, fmt::format("unit {} is gathered twice", event.unit));
        gathered.insert(event.unit);
        break;
      case UnitEvent::Kind::use:
        comparison.require_that(is_gathered,
                                fmt::format("unit {} is used and not gathered", event.unit));
        break;
      case UnitEvent::Kind::free:
        comparison.require_that(is_gathered,
                                fmt::format("unit {} is freed and not gathered", event.unit));
        gathered.erase(event.unit);
        break;
      case UnitEvent::Kind::reduce:
        break;
    }
    const auto blocks = static_cast<int>(gathered.size() - gathered.count(root_unit));
    comparison.require_that(most == 0 || blocks <= most,
                            fmt::format("{} blocks are gathered at a time, --limit-all-gathers "
                                        "is {}",
                                        blocks, most));
  }
  comparison.require_that(gathered.empty(), "a unit stays gathered");
}

}  // namespace

void check_invariants(CaseComparison& comparison, const Plan& plan, int rank) {
  if (plan.has_servers() || plan.is_reference()) return;
  const RankOutline outline(plan, rank);
  const std::optional<Sharding> sharding = sharding_of(plan);
  if (!sharding) return check_buckets(comparison, plan.options, outline.parameters());
  if (!sharding->shards_parameters() || sharding->by_stage) return;
  // Without resharding all blocks stay gathered.
  const int most = plan.options.reshard_after_forward == "no" ? 0 : plan.options.limit_all_gathers;
  for (const RankUnits::Stage& stage : sharded_units(outline.model(), *sharding).stages) {
    check_order(comparison, training_order(stage.shape, sharding->order, true), most);
    check_order(comparison, evaluation_order(stage.shape, sharding->order), most);
  }
}

}  // namespace lockstep
