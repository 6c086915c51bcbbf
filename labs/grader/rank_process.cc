#include "labs/grader/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr std::int64_t most_frame_bytes = std::int64_t{1} << 26;

}  // namespace

RankProcess::RankProcess(const std::string& program, const std::string& library) {
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0,
          "cannot make a socket for a rank of a lab", std::strerror(errno));
  socket_ = ends[0];
  fcntl(ends[1], F_SETFL, 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int standard : {0, 1, 2})
    posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], lab_socket);
  posix_spawn_file_actions_addclosefrom_np(&actions, lab_socket + 1);
  std::string path = program, argument = library;
  const std::array<char*, 3> words = {path.data(), argument.data(), nullptr};
  // A rank has one thread.
  std::string blas = "OPENBLAS_NUM_THREADS=1", loops = "OMP_NUM_THREADS=1";
  const std::array<char*, 3> environment = {blas.data(), loops.data(), nullptr};
  const int failed =
      posix_spawn(&process_, path.c_str(), &actions, nullptr, words.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  require(failed == 0, fmt::format("cannot start {}", path), "build again");
}

RankProcess::~RankProcess() {
  end();
  close(socket_);
}

void RankProcess::write(Frame frame, const void* content, std::int64_t bytes) {
  frame.bytes = bytes;
  append(&frame, sizeof frame);
  append(content, static_cast<std::size_t>(bytes));
}

void RankProcess::flush() {
  while (has_output()) {
    const ssize_t written =
        send(socket_, leaving_.data() + written_, leaving_.size() - written_, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) break;  // fill() reports what happened
    written_ += static_cast<std::size_t>(written);
  }
  leaving_.clear();
  written_ = 0;
}

bool RankProcess::fill() {
  std::array<std::byte, 65536> part;
  const ssize_t got = ::read(socket_, part.data(), part.size());
  if (got > 0) arriving_.insert(arriving_.end(), part.begin(), part.begin() + got);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

std::optional<Frame> RankProcess::next(std::vector<std::byte>& content) {
  Frame frame;
  if (arriving_.size() < sizeof frame) return {};
  std::memcpy(&frame, arriving_.data(), sizeof frame);
  if (frame.bytes < 0 || frame.bytes > most_frame_bytes) return Frame{.kind = Frame::Kind::job};
  const std::size_t whole = sizeof frame + static_cast<std::size_t>(frame.bytes);
  if (arriving_.size() < whole) return {};
  content.assign(arriving_.begin() + sizeof frame,
                 arriving_.begin() + static_cast<std::ptrdiff_t>(whole));
  arriving_.erase(arriving_.begin(), arriving_.begin() + static_cast<std::ptrdiff_t>(whole));
  return frame;
}

std::int64_t RankProcess::memory_bytes() const {
  std::ifstream status(fmt::format("/proc/{}/status", process_));
  for (std::string word; status >> word;)
    if (word == "VmSize:") {
      std::int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  return 0;
}

bool RankProcess::is_asleep() const {
  std::ifstream status(fmt::format("/proc/{}/status", process_));
  for (std::string word; status >> word;)
    if (word == "State:") return status >> word && (word == "S" || word == "T");
  return false;
}

void RankProcess::end() {
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

RankProcess::End RankProcess::wait() {
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  if (WIFEXITED(status))
    return {fmt::format("has left without a result, with exit status {}", WEXITSTATUS(status))};
  const int signal = WTERMSIG(status);
  if (signal == SIGXCPU || signal == SIGKILL) return {"has computed for too long", true};
  if (signal == SIGSYS)
    return {"made a system call that a lab may not make: files, sockets, other processes, sleep"};
  return {fmt::format("has crashed: {}", strsignal(signal))};
}

void RankProcess::append(const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(data);
  leaving_.insert(leaving_.end(), first, first + bytes);
}

}  // namespace lockstep
