#include "collectives/transport/modules/modules.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "collectives/base/error.h"
#include "collectives/base/module_path.h"
#include "collectives/transport/decorators/decorator.h"

namespace lockstep {
namespace {

// Adds the collectives of another library.
class WithVendor final : public TransportDecorator {
 public:
  WithVendor(std::unique_ptr<Transport> end, std::unique_ptr<VendorCollectives> vendor)
      : TransportDecorator(std::move(end)), vendor_(std::move(vendor)) {
    capabilities_.vendor = vendor_.get();
  }

 private:
  std::unique_ptr<VendorCollectives> vendor_;
};

std::string path_of(std::string_view library) {
  const char* const named = std::getenv("LOCKSTEP_NCCL_MODULE");
  return named && library == "nccl" ? std::string(named) : module_path(library).string();
}

}  // namespace

void* module_entry(std::string_view library, const char* entry, std::string_view packages) {
  // MPI libraries load plugins that look up symbols globally.
  void* module = dlopen(path_of(library).c_str(), RTLD_NOW | RTLD_GLOBAL);
  require(module != nullptr,
          fmt::format("no transport for {}: {}", library, module ? "" : dlerror()),
          fmt::format("install {} and build again", packages));
  void* function = dlsym(module, entry);
  require(function != nullptr, fmt::format("{} is not a transport module", path_of(library)),
          "build again");
  return function;
}

bool has_vendor(std::string_view library) {
  void* module = dlopen(path_of(library).c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!module) return false;
  const bool has = dlsym(module, "lockstep_open_vendor") != nullptr;
  dlclose(module);
  return has;
}

std::unique_ptr<VendorWorld> open_vendor(std::string_view library, int ranks, double timeout_s) {
  auto* open = reinterpret_cast<OpenVendor*>(
      module_entry(library, "lockstep_open_vendor", fmt::format("lib{}-dev", library)));
  return std::unique_ptr<VendorWorld>(open(ranks, timeout_s));
}

std::unique_ptr<GpuWorld> open_gpus(std::unique_ptr<Transport> control, Device& gpu,
                                    double timeout_s) {
  auto* open =
      reinterpret_cast<OpenGpus*>(module_entry("nccl", "lockstep_open_gpus",
                                               "libnccl-dev (without it, ranks share the one GPU "
                                               "that CUDA_VISIBLE_DEVICES=0 leaves)"));
  return std::unique_ptr<GpuWorld>(open(std::move(control), gpu, timeout_s));
}

std::unique_ptr<Transport> with_vendor(std::unique_ptr<Transport> end, VendorWorld& vendor) {
  const int rank = end->rank();
  return std::make_unique<WithVendor>(std::move(end), vendor.join(rank));
}

}  // namespace lockstep
