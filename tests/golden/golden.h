// The golden runs: results in float64 of another program, in the folders beside this file.
#pragma once

#include <string>

namespace lockstep::test {

// The folder of the run "tiny"; those of others have a suffix, as in golden_folder() + "_moe".
std::string golden_folder();

}  // namespace lockstep::test
