#include "parallel/rank/strategy.h"

#include "parallel/data/ddp.h"
#include "parallel/sharded/sharded.h"

namespace lockstep {

std::unique_ptr<DataParallel> make_data_parallel(RankContext& context, Communicator& replicas,
                                                 const Plan& plan, RankModel& model,
                                                 ParameterSet set, Backend& backend) {
  if (sharding_of(plan)) return make_sharded(context, replicas, plan, model, set, backend);
  return make_ddp(context, replicas, plan, model.of(set), backend);
}

}  // namespace lockstep
