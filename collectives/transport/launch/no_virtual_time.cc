// In place of launch_symmetric.cc where only the collectives are built: without virtual time.
#include "collectives/base/error.h"
#include "collectives/transport/launch/launch_symmetric.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::bad_input, "this build of the collectives has no virtual time",
              {.hint = "use the clock wall, or build with cmake -DLOCKSTEP_PARTS=libraries"});
}

}  // namespace

void launch_symmetric(const LaunchOptions&, const std::vector<int>&,
                      const std::function<void(RankContext&)>&) {
  refuse();
}
void launch_at_once(const LaunchOptions&, const std::vector<std::function<void(RankContext&)>>&) {
  refuse();
}

}  // namespace lockstep
