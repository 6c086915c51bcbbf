// The module's entry: a world in which each rank has its own GPU.
#include <numeric>

#include "collectives/transport/modules/gpu_world.h"
#include "collectives/transport/nccl/transport.h"

namespace lockstep {
namespace {

class NcclWorld final : public GpuWorld {
 public:
  NcclWorld(std::unique_ptr<Transport> control, Device& gpu, double timeout_s)
      : rank_(std::make_shared<NcclRank>(*control, gpu, timeout_s)), control_(std::move(control)) {}

  std::unique_ptr<Transport> transport() override {
    std::vector<int> world_ranks(static_cast<std::size_t>(control_->size()));
    std::iota(world_ranks.begin(), world_ranks.end(), 0);
    return nccl_transport(rank_, std::move(control_), std::move(world_ranks));
  }
  void finish() override { rank_->finish(); }

 private:
  std::shared_ptr<NcclRank> rank_;
  std::unique_ptr<Transport> control_;
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::GpuWorld* lockstep_open_gpus(std::unique_ptr<lockstep::Transport> control,
                                                  lockstep::Device& gpu, double timeout_s) {
  return new lockstep::NcclWorld(std::move(control), gpu, timeout_s);
}
