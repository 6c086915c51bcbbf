#include "collectives/base/module_path.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace lockstep {

std::filesystem::path module_path(std::string_view library) {
  Dl_info self{};
  dladdr(reinterpret_cast<const void*>(&module_path), &self);
  return std::filesystem::canonical(self.dli_fname).parent_path() /
         fmt::format("liblockstep_{}.so", library);
}

}  // namespace lockstep
