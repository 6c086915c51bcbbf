#include "collectives/transport/failure/interruption.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr std::array signals = {SIGINT, SIGTERM};
// Where the handler writes; a handler may use only what is async-signal-safe.
volatile std::sig_atomic_t handlers_pipe = -1;

// The signal that came between two worlds, and whether such signals wait for the next world.
std::atomic<int> signal_between = 0;
volatile std::sig_atomic_t waits_for_next = 0;

void note_for_next(int signal) { signal_between = signal; }

void note(int signal) {
  const int error = errno;
  const char number = static_cast<char>(signal);
  [[maybe_unused]] const auto written = write(handlers_pipe, &number, 1);
  errno = error;
}

// Handlers run on the watching thread only, so that no computation is interrupted: some kernels and
// virtual machines do not restore wide registers after a signal.
void set_blocked(bool blocked) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, nullptr);
}

int take_signal_between() { return signal_between.exchange(0); }

std::string_view name_of(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

using Handler = void (*)(int);

// Signals that are ignored stay ignored: a shell ignores SIGINT for programs in the background.
void replace_handler(Handler old, Handler handler, int flags) {
  for (const int signal : signals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != old) continue;
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(signal, &action, nullptr);
  }
}

// The handler outside a world.
Handler outer_handler() { return waits_for_next != 0 ? note_for_next : SIG_DFL; }

}  // namespace

LaterInterruption::LaterInterruption() {
  waits_for_next = 1;
  replace_handler(SIG_DFL, note_for_next, SA_RESTART);
}

LaterInterruption::~LaterInterruption() {
  waits_for_next = 0;
  replace_handler(note_for_next, SIG_DFL, 0);
  const int signal = take_signal_between();
  if (signal != 0 && std::uncaught_exceptions() == 0) std::raise(signal);
}

Interruption::Interruption(std::function<void(std::string_view)> stop) : stop_(std::move(stop)) {
  if (pipe2(pipe_.data(), O_CLOEXEC) != 0) return;  // without descriptors signals end the process
  handlers_pipe = pipe_[1];
  watcher_ = std::jthread([this] { watch(); });
  replace_handler(outer_handler(), note, static_cast<int>(SA_RESTART | SA_RESETHAND));
  set_blocked(true);
  if (const int signal = take_signal_between(); signal != 0) stop_(name_of(signal));
}

Interruption::~Interruption() {
  if (!watcher_.joinable()) return;
  replace_handler(note, outer_handler(), SA_RESTART);
  const char end = 0;
  [[maybe_unused]] const auto written = write(pipe_[1], &end, 1);
  watcher_.join();
  for (const int descriptor : pipe_) close(descriptor);
  set_blocked(false);
}

void Interruption::watch() {
  set_blocked(false);
  // Not in read(): the thread sanitizer runs handlers while a thread waits in poll().
  pollfd written{.fd = pipe_[0], .events = POLLIN, .revents = 0};
  while (poll(&written, 1, -1) < 0 && errno == EINTR) {
  }
  std::array<char, 2> numbers{};
  const auto count = read(pipe_[0], numbers.data(), numbers.size());
  const bool world_has_ended = count != 1 || numbers[0] == 0;
  const int signal = std::max(numbers[0], numbers[1]);
  if (signal == 0) return;
  if (waits_for_next != 0) note_for_next(signal);  // all ranks may be past their last operation
  if (world_has_ended) return;
  stop_(name_of(signal));
  constexpr auto patience = std::chrono::seconds(5);
  pollfd end{.fd = pipe_[0], .events = POLLIN, .revents = 0};
  if (poll(&end, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) != 0) return;
  fmt::print(stderr,
             "lockstep: [interrupted] {}: a rank has computed for {} s without an operation, so "
             "the process ends without a record of the ranks' last operations\n",
             name_of(signal), patience.count());
  _exit(Error(ErrorKind::interrupted, "").exit_status());
}

}  // namespace lockstep
