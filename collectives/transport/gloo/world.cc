// The module's entry: a gloo world over TCP on this host whose ranks are threads.
#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/transport/gloo/vendor.h"
#include "collectives/transport/modules/vendor_world.h"

namespace lockstep {
namespace {

class GlooWorld final : public VendorWorld {
 public:
  GlooWorld(int ranks, double timeout_s)
      : timeout_(std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::duration<double>(timeout_s))) {
    // A gloo device is a thread that sends and receives. Each rank has its own, like a process.
    constexpr const char* this_host = "127.0.0.1";
    for (int rank = 0; rank < ranks; ++rank)
      devices_.push_back(gloo::transport::tcp::CreateDevice(this_host));
  }

  std::unique_ptr<VendorCollectives> join(int rank) override {
    try {
      auto context = std::make_shared<gloo::rendezvous::Context>(rank, size());
      context->setTimeout(timeout_);
      context->connectFullMesh(store_, devices_[static_cast<std::size_t>(rank)]);
      return std::make_unique<GlooCollectives>(std::move(context));
    } catch (const std::exception& error) {
      throw Error(ErrorKind::lost_rank, fmt::format("gloo cannot connect: {}", error.what()),
                  {.rank = rank, .size = size()});
    }
  }

 private:
  int size() const { return static_cast<int>(devices_.size()); }

  std::chrono::milliseconds timeout_;
  std::vector<std::shared_ptr<gloo::transport::Device>> devices_;
  gloo::rendezvous::HashStore store_;  // where ranks find the addresses of others
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::VendorWorld* lockstep_open_vendor(int ranks, double timeout_s) {
  return new lockstep::GlooWorld(ranks, timeout_s);
}
