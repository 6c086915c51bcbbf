#include "tests/golden/golden.h"

namespace lockstep::test {

std::string golden_folder() { return LOCKSTEP_GOLDEN; }

}  // namespace lockstep::test
