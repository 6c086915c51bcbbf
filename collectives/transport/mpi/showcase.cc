#include "collectives/transport/mpi/showcase.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace lockstep {

void Showcase::sleep_while_asleep(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  const timespec longest{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  syscall(SYS_futex, &asleep_, FUTEX_WAIT, 1, &longest, nullptr, 0);
}

void Showcase::wake_owner() { syscall(SYS_futex, &asleep_, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

}  // namespace lockstep
