#include "parallel/rank/strategy.h"

#include "parallel/data/ddp.h"
#include "parallel/data/frozen.h"
#include "parallel/data/in_backward.h"
#include "parallel/data/local_steps.h"
#include "parallel/sharded/sharded.h"

namespace lockstep {

std::unique_ptr<DataParallel> make_data_parallel(RankContext& context, Communicator& replicas,
                                                 const Plan& plan, RankModel& model,
                                                 ParameterSet set, Backend& backend) {
  if (sharding_of(plan, set)) return make_sharded(context, replicas, plan, model, set, backend);
  if (!is_trained(set)) return make_frozen(context, replicas, model.of(set));
  if (plan.options.local_steps)
    return make_local_steps(context, replicas, plan, model.of(set), backend);
  if (plan.options.optimizer_in_backward)
    return make_in_backward(context, replicas, plan, model, set, backend);
  return make_ddp(context, replicas, plan, model.of(set), backend);
}

}  // namespace lockstep
