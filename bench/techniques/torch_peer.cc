#include "bench/techniques/torch_peer.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <vector>

#include "collectives/base/error.h"

namespace lockstep {

TorchPeer::TorchPeer(const std::string& python, const std::string& script) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "cannot make a socket");
  channel_ = ends[0];
  std::vector<std::string> words = {python, "-B", script};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO})
    posix_spawn_file_actions_adddup2(&actions, ends[1], descriptor);
  const int failed =
      posix_spawnp(&child_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed == 0) return;
  close(channel_);
  require(false, fmt::format("cannot start {}", python), "omit --peer");
}

// It ends when its input does.
TorchPeer::~TorchPeer() {
  close(channel_);
  waitpid(child_, nullptr, 0);
}

std::string TorchPeer::ask(const std::string& line) {
  const std::string sent = line + "\n";
  std::string answer;
  bool is_alive =
      send(channel_, sent.data(), sent.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(sent.size());
  for (char c = 0; is_alive;) {
    is_alive = read(channel_, &c, 1) == 1;
    if (is_alive && c == '\n') return answer;
    answer += c;
  }
  throw Error(ErrorKind::lost_rank, "PyTorch's process has ended",
              {.hint = "its message is above; omit --peer to measure without it"});
}

std::pair<double, double> TorchPeer::run() {
  std::istringstream answer(ask("run"));
  std::pair<double, double> seconds;
  answer >> seconds.first >> seconds.second;
  return seconds;
}

}  // namespace lockstep
