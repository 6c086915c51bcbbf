// Confines this process, to run untrusted code. The kernel enforces every limit, and the process
// cannot raise any of them again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Limits of the process that calls limit_process(): a child between fork and exec, or a program
// that is about to load foreign code.
struct Limits {
  std::int64_t processor_s = 3;
  std::int64_t memory_bytes = std::int64_t{1}
                              << 30;  // address space, including stacks and shared memory
  std::int64_t file_bytes = 0;
};
// Lowers the limits of this process. Root becomes `nobody`, where becomes_nobody().
// Throws Error (bad_input) if that fails.
void limit_process(const Limits& limits);

// Whether a process of this user can become `nobody`: root can, outside of some containers.
bool becomes_nobody();
inline constexpr std::uint32_t nobody = 65534;

// From now on only these files and what is below these folders can be read and executed, and only
// what is below `written` can be changed. Landlock keeps this; on a kernel without it a root folder
// that holds nothing else, which is in a mount namespace. Returns false, and does nothing, where a
// process may have neither. Call it before limit_process(). With Landlock, no TCP either.
bool restrict_files(const std::vector<std::string>& read, const std::vector<std::string>& written);

// From now on every system call ends the process, except those that a computation needs: memory,
// reading and writing open files, loading libraries, its own end. Only a read can sleep. Throws
// Error (bad_input) if the kernel refuses.
void restrict_system_calls();

// Returns the missing protections of this machine and user, in sentences; empty if none is missing.
std::vector<std::string> missing_protection();

}  // namespace lockstep
