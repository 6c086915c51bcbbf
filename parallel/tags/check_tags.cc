#include "parallel/tags/check_tags.h"

#include <atomic>
#include <cassert>

#include "parallel/dry_run.h"
#include "parallel/tags/tagged_backend.h"
#include "parallel/tags/tagged_device.h"
#include "parallel/trainer.h"

namespace lockstep {
namespace {

// Whether assert() does anything in this build.
constexpr bool is_debug_build = [] {
  bool asserts = false;
  assert((asserts = true));
  return asserts;
}();
std::atomic<bool> are_tags_checked = is_debug_build;

// What a backend with checks consists of.
struct Parts {
  Parts(RankContext& of, const Plan& plan, std::unique_ptr<Backend> inner)
      : context(of),
        check(plan, of.world.rank(), of.world.group()),
        before(of.ledger.device() ? *of.ledger.device() : host_device()),
        device(before, check),
        backend(std::move(inner)) {
    context.ledger.place_on(device);
    context.world.observe(&check);
  }
  ~Parts() {
    context.world.observe(nullptr);
    context.ledger.place_on(before);
  }
  Parts(const Parts&) = delete;

  RankContext& context;
  TagCheck check;
  Device& before;
  TaggedDevice device;
  std::unique_ptr<Backend> backend;  // has memory on the device
};

class CheckedBackend final : private Parts, public TaggedBackend {
 public:
  CheckedBackend(RankContext& of, const Plan& plan, std::unique_ptr<Backend> inner)
      : Parts(of, plan, std::move(inner)), TaggedBackend(*Parts::backend, Parts::check) {}
  using Parts::check;
};

bool has_tags(RankContext& context, const Plan& plan) {
  const Device* const device = context.ledger.device();
  return plan.ranks > 1 && !plan.has_servers() && !(device && device->enqueues()) &&
         &context.world.transport().concurrency() == &threads_concurrency() &&
         TagAxes(plan).is_exact();
}

}  // namespace

void check_tags(bool is_checked) { are_tags_checked = is_checked; }

std::unique_ptr<Backend> with_tags(RankContext& context, const Plan& plan,
                                   std::unique_ptr<Backend> backend) {
  if (!are_tags_checked || !has_tags(context, plan)) return backend;
  return std::make_unique<CheckedBackend>(context, plan, std::move(backend));
}

std::int64_t check_tags_of(const Plan& plan, const std::vector<int>& ranks) {
  std::int64_t checked = 0;
  if (plan.ranks == 1 || plan.has_servers() || !TagAxes(plan).is_exact()) return checked;
  for (const int rank : ranks)
    launch_alone({.ranks = plan.ranks, .fault = {}, .device = &none_device()}, rank,
                 [&](RankContext& context) {
                   CheckedBackend backend(context, plan,
                                          std::make_unique<DryBackend>(context.ledger));
                   const auto training = make_rank(context, plan, backend);
                   training->load_weights();
                   for (int step = 0; step < 2; ++step)
                     take_dry_step(*training, plan, dry_batches(plan, rank, step));
                   checked += backend.check.checked();
                 });
  return checked;
}

}  // namespace lockstep
