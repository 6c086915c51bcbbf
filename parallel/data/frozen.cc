#include "parallel/data/frozen.h"

#include "collectives/base/error.h"
#include "collectives/broadcast/broadcast.h"
#include "parallel/plan/environment.h"
#include "parallel/rank/first_weights.h"

namespace lockstep {
namespace {

class Frozen final : public DataParallel {
 public:
  Frozen(RankContext& context, Communicator& replicas, Parameters& parameters)
      : context_(context), replicas_(replicas), parameters_(parameters) {
    parameters_.allocate();
  }

  void load(const std::function<void()>& read) override {
    if (replicas_.rank() == 0) read();
    if (replicas_.size() == 1 || !has_data(context_.ledger)) return;
    replicas_.set_label("weights");
    broadcast(replicas_, parameters_.values());
  }
  void begin(double) override {}
  void finish() override {}
  std::vector<Slice> own_gradients(const std::vector<Range>&) override { return {}; }
  double squared_norm() override { return 0; }
  void step(double, double) override {}
  TrainingState state() override { return {.parameters = &parameters_}; }
  FlatBuffer flat(Gathered what) override { return {flat_of(parameters_, what)}; }
  double waiting_seconds() const override { return 0; }
  double communication_seconds() const override { return 0; }
  ReplicaFacts facts() const override { return {}; }

 private:
  RankContext& context_;
  Communicator& replicas_;
  Parameters& parameters_;
};

}  // namespace

std::unique_ptr<DataParallel> make_frozen(RankContext& context, Communicator& replicas,
                                          Parameters& parameters) {
  return std::make_unique<Frozen>(context, replicas, parameters);
}

}  // namespace lockstep
