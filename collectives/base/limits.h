// The machine's remaining resources, so that a request that cannot be met is rejected with a clear
// error before anything is allocated.
#pragma once

#include <string_view>

namespace lockstep {

// The most addresses that this process may use, by `ulimit -v`; infinite without a limit.
double address_limit();

// The memory that this process can still get, in bytes: the least of what the machine has available,
// what the limits of this process leave, and what its control group allows. A limit of addresses
// (`ulimit -v`) keeps some for libraries.
double available_bytes();

// Throws Error (bad_input), "WHAT needs about 40 GiB of memory, and 21 GiB are available; HINT",
// unless that much is available.
void require_memory(double bytes, std::string_view what, std::string_view hint);

// Throws Error (bad_input) unless the system lets this process start that many more threads. It
// starts and ends them: OpenMP would end the process if one failed.
void require_threads(double count, std::string_view what, std::string_view hint);

}  // namespace lockstep
