// Confines this process, for code that nobody has read. Every limit is kept by the kernel, and none
// of them can be raised again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Of the process that calls confine(): a child between fork and exec, or a program that is about to
// load foreign code.
struct Limits {
  std::int64_t processor_s = 3;
  std::int64_t memory_bytes = std::int64_t{1} << 30;  // addresses: also stacks and shared memory
  std::int64_t file_bytes = 0;
  bool gives_up_root = true;  // for the rights of `nobody`
};
// Lowers the limits of this process.
// Throws Error (bad_input) if that fails.
void limit_process(const Limits& limits);

// Whether the kernel has Landlock, with which a process confines its own access to files.
bool can_restrict_files();

// From now on only these files and what is below these folders can be read and executed, and only
// what is below `written` can be changed. No TCP. Does nothing and returns false without Landlock.
bool restrict_files(const std::vector<std::string>& read, const std::vector<std::string>& written);

// From now on every system call ends the process, except those that a computation needs: memory,
// reading and writing open files, loading libraries, its own end. None of them sleeps but a read.
// Throws Error (bad_input) if the kernel refuses.
void restrict_system_calls();

}  // namespace lockstep
