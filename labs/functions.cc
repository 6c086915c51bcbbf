#include "labs/functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "collectives/base/error.h"

namespace lockstep {

LabFunctions load_functions(const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened)
    throw Error(ErrorKind::bad_input, fmt::format("cannot load the code: {}", dlerror()));
  void* const symbol = dlsym(opened, get_lab_functions);
  if (!symbol)
    throw Error(ErrorKind::bad_input, fmt::format("the code has no {}", get_lab_functions));
  GetLabFunctions get = nullptr;
  static_assert(sizeof get == sizeof symbol);
  std::memcpy(&get, &symbol, sizeof get);
  return get();
}

}  // namespace lockstep
