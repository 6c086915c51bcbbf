#include "parallel/tags/with_tags.h"

#include <atomic>
#include <cassert>

#include "models/ops/device_backend.h"
#include "parallel/tags/tagged_device.h"

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
        device(before, check.state()),
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
};

bool can_check(RankContext& context) {
  const Device* const device = context.ledger.device();
  return !(device && device->enqueues()) &&
         &context.world.transport().concurrency() == &threads_concurrency();
}

}  // namespace

bool has_tags(const Plan& plan) {
  return plan.ranks > 1 && !plan.has_servers() && !plan.options.local_steps &&
         TagAxes(plan).is_exact();
}

std::unique_ptr<TaggedBackend> always_with_tags(RankContext& context, const Plan& plan,
                                                std::unique_ptr<Backend> backend) {
  return std::make_unique<CheckedBackend>(context, plan, std::move(backend));
}

void check_tags(bool is_checked) { are_tags_checked = is_checked; }

std::unique_ptr<Backend> with_tags(RankContext& context, const Plan& plan,
                                   std::unique_ptr<Backend> backend) {
  if (!are_tags_checked || !has_tags(plan) || !can_check(context)) return backend;
  return always_with_tags(context, plan, std::move(backend));
}

std::unique_ptr<Backend> backend_with_tags(RankContext& context, const Plan& plan) {
  return with_tags(context, plan, make_backend(context.ledger));
}

}  // namespace lockstep
