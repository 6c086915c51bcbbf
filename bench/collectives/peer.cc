#include "bench/collectives/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "collectives/base/process.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

using Futex = std::atomic<std::uint32_t>;
constexpr int most_ranks = 1024;
constexpr int go_on = 0, quit = 1, run_out_of_place = 2, run_in_place = 3;
constexpr int look_again_ms = 200;

// Sleeps while `word` is `old`, at most look_again_ms. std::atomic's wait only works between the
// threads of one process.
void sleep_on(Futex& word, std::uint32_t old) {
  const timespec patience{.tv_sec = 0, .tv_nsec = look_again_ms * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, old, &patience, nullptr, 0);
}
void wake_all(Futex& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, most_ranks, nullptr, nullptr, 0);
}

}  // namespace

// Shared between processes. New boards are all zero.
struct PeerBoard {
  Futex told;      // number of commands so far
  Futex answered;  // the last command that all ranks have obeyed
  std::atomic<std::uint32_t> answers;
  std::atomic<std::int32_t> command;
  std::int32_t ranks;
  pid_t asking;                 // the measuring process
  std::array<char, 100> lacks;  // null-terminated
  std::array<double, 2> wrong;
  std::array<double, most_ranks> seconds;
};

namespace {

PeerBoard* map_board(const std::string& path, int flags) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  require(descriptor >= 0, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  const bool sized = flags == 0 || ftruncate(descriptor, sizeof(PeerBoard)) == 0;
  void* memory =
      mmap(nullptr, sizeof(PeerBoard), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  require(sized && memory != MAP_FAILED,
          fmt::format("cannot map {}: {}", path, std::strerror(errno)));
  return static_cast<PeerBoard*>(memory);
}

// The command line that starts the ranks of a peer, without the path of its board.
std::vector<std::string> starting_words(const PeerCommand& command) {
  const std::string count = std::to_string(command.ranks);
  std::vector<std::string> words, last;
  if (command.library == "openmpi") {
    words = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", count};
  } else if (command.library == "mpich") {
    words = {"mpirun.mpich", "-np", count};
  } else {
    require(command.library == "gloo", fmt::format("--peer '{}'", command.library),
            "choose openmpi, mpich or gloo");
    require(can_be_vendor(command.library), "--peer gloo: this program was built without it",
            "apt-get install libgloo-dev and build again, or omit --peer");
    last = {"--vendor", command.library, "--ranks", count};
  }
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  words.insert(words.end(), command.words.begin(), command.words.end());
  words.insert(words.end(), last.begin(), last.end());
  return words;
}

}  // namespace

Peer::Peer(PeerCommand command) : command_(std::move(command)) {
  require(command_.ranks <= most_ranks,
          fmt::format("--peer {} with {} ranks", library(), command_.ranks),
          fmt::format("a peer has at most {}", most_ranks));
  std::vector<std::string> words = starting_words(command_);
  board_path_ = fmt::format("/dev/shm/lockstep-peer-{}-{}", library(), getpid());
  board_ = map_board(board_path_, O_CREAT | O_EXCL);
  board_->ranks = command_.ranks;
  board_->asking = getpid();
  words.insert(words.end(), {"--serve", board_path_});
  const std::string log_path = board_path_ + ".log";
  launcher_ = start_program(words, log_path);
  // The file lives as long as a process has it open, so nothing is left over however this one ends.
  log_.open(log_path);
  unlink(log_path.c_str());
  if (launcher_ >= 0) return;
  stop();
  require(false, fmt::format("--peer {}: {} is not on PATH", library(), words.front()),
          "install it, or omit --peer");
}

Peer::~Peer() { stop(); }

void Peer::stop() {
  if (launcher_ > 0) {
    board_->command.store(quit);
    board_->told.fetch_add(1);
    wake_all(board_->told);
    constexpr int looks_before_term = 50, looks_before_kill = 150;
    constexpr useconds_t between_looks_us = 20'000;
    for (int look = 0; waitpid(launcher_, nullptr, WNOHANG) == 0; ++look) {
      if (look == looks_before_term) kill(launcher_, SIGTERM);
      if (look == looks_before_kill) kill(launcher_, SIGKILL);
      usleep(between_looks_us);
    }
    launcher_ = -1;
  }
  munmap(board_, sizeof(PeerBoard));
  unlink(board_path_.c_str());
}

std::string Peer::last_line() {
  std::string last;
  for (std::string line; std::getline(log_, line);)
    if (line.starts_with("lockstep: ") || last.empty()) last = line;
  return last.empty() ? "it printed nothing" : last;
}

void Peer::send(int command) {
  board_->answers.store(0);
  board_->command.store(command);
  const std::uint32_t number = board_->told.fetch_add(1) + 1;
  wake_all(board_->told);
  const auto start = std::chrono::steady_clock::now();
  while (board_->answered.load() != number) {
    sleep_on(board_->answered, number - 1);
    if (board_->answered.load() == number) break;
    const bool ended = waitpid(launcher_, nullptr, WNOHANG) != 0;
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (ended) launcher_ = -1;
    if (ended || waited.count() > command_.timeout_s)
      throw Error(
          ErrorKind::lost_rank,
          fmt::format(
              "the peer {} {}: {}", library(),
              ended ? "has ended" : fmt::format("does not answer within {:.0f} s", waited.count()),
              last_line()),
          {.hint = fmt::format("omit --peer, or check that {} works here",
                               library() == "gloo" ? "TCP to 127.0.0.1" : "its mpirun")});
  }
}

void Peer::wait_for_ranks() {
  send(go_on);
  unlink(board_path_.c_str());
}
void Peer::next_point() { send(go_on); }
std::string_view Peer::transport() const { return library() == "gloo" ? "tcp" : "mpi"; }
std::string Peer::lacks() const { return board_->lacks.data(); }
double Peer::wrong(bool in_place) const { return board_->wrong[in_place ? 1 : 0]; }

std::vector<double> Peer::run(bool in_place) {
  send(in_place ? run_in_place : run_out_of_place);
  return {board_->seconds.begin(), board_->seconds.begin() + board_->ranks};
}

PeerServer::PeerServer(const std::string& path, int rank)
    : path_(path), board_(map_board(path, 0)), rank_(rank) {
  if (wait_for_command() != quit) answer();
}

PeerServer::~PeerServer() { munmap(board_, sizeof(PeerBoard)); }

int PeerServer::wait_for_command() const {
  while (board_->told.load() == obeyed_) {
    sleep_on(board_->told, obeyed_);
    if (kill(board_->asking, 0) == 0 || errno != ESRCH) continue;
    // The measuring process was killed: it can neither clean up nor send a command.
    unlink(path_.c_str());
    board_->command.store(quit);
    board_->told.fetch_add(1);
  }
  return board_->command.load();
}

void PeerServer::answer() {
  ++obeyed_;
  if (board_->answers.fetch_add(1) + 1 < static_cast<std::uint32_t>(board_->ranks)) return;
  board_->answered.store(obeyed_);
  wake_all(board_->answered);
}

void PeerServer::serve(Communicator& comm, const std::vector<Timed>& entries,
                       const std::vector<double>& wrong, std::string_view lacks) {
  if (wait_for_command() == quit) return;
  if (rank_ == 0) {
    const std::size_t length = lacks.copy(board_->lacks.data(), board_->lacks.size() - 1);
    board_->lacks[length] = 0;
    for (std::size_t i = 0; i < wrong.size(); ++i) board_->wrong[i] = wrong[i];
  }
  answer();
  for (int command = wait_for_command(); command == run_out_of_place || command == run_in_place;
       command = wait_for_command()) {
    const Timed& entry = entries.at(command == run_in_place ? 1 : 0);
    board_->seconds[static_cast<std::size_t>(rank_)] = run_once(comm, entry);
    answer();
  }
}

}  // namespace lockstep
