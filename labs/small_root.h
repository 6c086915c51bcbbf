// A root folder that holds nothing but a few files and folders, for kernels without Landlock.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// From now on this process, and those that it starts, see only these, under their own paths, and can
// change only `written`. The current folder stays, if it is among them. Root needs no user namespace;
// anybody else must be allowed one. Returns false, and does nothing, if it is not.
// Throws Error (bad_input) if a mount fails after that.
bool enter_small_root(const std::vector<std::string>& read,
                      const std::vector<std::string>& written);

}  // namespace lockstep
