#include "labs/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "collectives/base/error.h"
#include "labs/small_root.h"

namespace lockstep {
namespace {

void check_call(bool success, const char* what) {
  require(success, [&] {
    return fmt::format("cannot confine the process: {}: {}", what, std::strerror(errno));
  });
}

void limit(int resource, std::int64_t most) {
  rlimit now{};
  getrlimit(static_cast<__rlimit_resource>(resource), &now);
  const rlim_t wanted = std::min(static_cast<rlim_t>(most), now.rlim_max);
  const rlimit lower{.rlim_cur = wanted, .rlim_max = wanted};
  check_call(setrlimit(static_cast<__rlimit_resource>(resource), &lower) == 0, "setrlimit");
}

// False of who is not root, and in containers whose root may not.
bool become_nobody() {
  return geteuid() == 0 && syscall(SYS_setgroups, 0, nullptr) == 0 &&
         setresgid(nobody, nobody, nobody) == 0 && setresuid(nobody, nobody, nobody) == 0;
}

template <typename Attempt>
bool succeeds_in_child(Attempt attempt) {
  const pid_t child = fork();
  check_call(child >= 0, "fork");
  if (child == 0) {
    bool success = false;
    try {
      success = attempt();
    } catch (const std::exception&) {
    }
    _exit(success ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

constexpr std::uint64_t reads =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
// All rights of the first version: what is not named is refused.
constexpr std::uint64_t all_rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
constexpr std::uint64_t of_files =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;

// Headers of older systems do not have the rules for TCP, which version 4 of Landlock brought.
struct RulesetV4 {
  std::uint64_t files, tcp;
};
constexpr std::uint64_t bind_and_connect = 3;

long landlock_version() {
  return syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

void allow(int ruleset, const std::string& path, std::uint64_t rights) {
  const int folder = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (folder < 0) return;  // nothing to allow
  landlock_path_beneath_attr rule{.allowed_access = rights, .parent_fd = folder};
  long failed = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  if (failed != 0 && errno == EINVAL) {  // not a folder
    rule.allowed_access &= of_files;
    failed = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  }
  close(folder);
  check_call(failed == 0, "landlock_add_rule");
}

constexpr sock_filter statement(unsigned code, std::uint32_t value) {
  return {static_cast<std::uint16_t>(code), 0, 0, value};
}
constexpr sock_filter jump(std::uint32_t value, std::uint8_t if_equal, std::uint8_t otherwise) {
  return {BPF_JMP | BPF_JEQ | BPF_K, if_equal, otherwise, value};
}

}  // namespace

void limit_process(const Limits& limits) {
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, limits.processor_s);
  limit(RLIMIT_AS, limits.memory_bytes);
  limit(RLIMIT_FSIZE, limits.file_bytes);
  limit(RLIMIT_NOFILE, 64);
  become_nobody();
}

bool becomes_nobody() {
  static const bool can = succeeds_in_child([] { return become_nobody(); });
  return can;
}

bool restrict_files(const std::vector<std::string>& read, const std::vector<std::string>& written) {
  if (landlock_version() < 1) return enter_small_root(read, written);
  const RulesetV4 rules{.files = all_rights, .tcp = bind_and_connect};
  const auto ruleset =
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &rules,
                               landlock_version() >= 4 ? sizeof rules : sizeof rules.files, 0));
  check_call(ruleset >= 0, "landlock_create_ruleset");
  for (const std::string& path : read) allow(ruleset, path, reads);
  for (const std::string& path : written) allow(ruleset, path, all_rights);
  check_call(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl");
  check_call(syscall(SYS_landlock_restrict_self, ruleset, 0) == 0, "landlock_restrict_self");
  close(ruleset);
  return true;
}

void restrict_system_calls() {
  constexpr std::array allowed = {
      SYS_read,         SYS_write,        SYS_readv,         SYS_writev,     SYS_pread64,
      SYS_lseek,        SYS_close,        SYS_fstat,         SYS_newfstatat, SYS_openat,
      SYS_mmap,         SYS_munmap,       SYS_mprotect,      SYS_mremap,     SYS_madvise,
      SYS_brk,          SYS_rt_sigaction, SYS_gettid,        SYS_getpid,     SYS_rt_sigprocmask,
      SYS_rt_sigreturn, SYS_sched_yield,  SYS_clock_gettime, SYS_getrandom,  SYS_exit,
      SYS_exit_group,   SYS_mbind,
  };
  constexpr auto number = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  constexpr auto first_argument = static_cast<std::uint32_t>(offsetof(seccomp_data, args));
  constexpr auto second_argument =
      static_cast<std::uint32_t>(first_argument + sizeof(std::uint64_t));
  constexpr auto third_argument =
      static_cast<std::uint32_t>(first_argument + 2 * sizeof(std::uint64_t));
  std::vector<sock_filter> program = {
      statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offsetof(seccomp_data, arch))),
      jump(AUDIT_ARCH_X86_64, 1, 0),
      statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      statement(BPF_LD | BPF_W | BPF_ABS, number),
  };
  for (const long call : allowed) {
    program.push_back(jump(static_cast<std::uint32_t>(call), 0, 1));
    program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  // The standard library asks whether its output is a terminal.
  program.push_back(jump(SYS_ioctl, 0, 1));
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY));
  // std::call_once wakes whoever waits: nobody. A wait for a futex would be a sleep.
  program.push_back(jump(SYS_futex, 0, 4));
  program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, second_argument));
  program.push_back(jump(FUTEX_WAKE_PRIVATE, 0, 1));
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  // abort() sends a signal to its own process. SIGSTOP would make it sleep.
  program.push_back(jump(SYS_tgkill, 0, 5));
  program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, first_argument));
  program.push_back(jump(static_cast<std::uint32_t>(getpid()), 0, 3));
  program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, third_argument));
  program.push_back(jump(SIGABRT, 0, 1));
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()),
                          .filter = program.data()};
  check_call(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl");
  check_call(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "seccomp");
}

std::vector<std::string> missing_protection() {
  std::vector<std::string> missing;
  if (!succeeds_in_child([] { return restrict_files({"/usr"}, {}); }))
    missing.emplace_back(
        "this kernel has no Landlock, and this user may have no mount namespace: the compiler of a "
        "submission can read every file that its user can, and quote it");
  if (geteuid() == 0 && !becomes_nobody())
    missing.emplace_back(
        "root may not become nobody here: the code of a submission runs as the user of the grader");
  return missing;
}

}  // namespace lockstep
