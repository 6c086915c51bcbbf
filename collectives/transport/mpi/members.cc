#include "collectives/transport/mpi/members.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "collectives/base/links.h"
#include "collectives/transport/mpi/network_state.h"
#include "collectives/transport/mpi/peer_memory.h"

namespace lockstep {

namespace {

// MPI libraries do not report a shortage of shared memory.
std::string shared_memory_hint(std::size_t needed) {
  std::error_code failure;
  const auto free = std::filesystem::space("/dev/shm", failure).available;
  constexpr std::uintmax_t enough = std::uintmax_t{64} << 20;
  if (failure || free > enough) return {};
  return fmt::format(
      "/dev/shm has {} bytes left; this needs {}, and MPI 4 MiB for each rank: make it larger "
      "(docker run --shm-size 1g), or remove what killed jobs left: lockstep doctor --clean",
      free, needed);
}

}  // namespace

void check_mpi(int code, std::string_view what, const std::string& hint) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorKind::lost_rank,
              fmt::format("MPI cannot {}: {}", what,
                          std::string_view(text, static_cast<std::size_t>(length))),
              {.hint = hint});
}

void await_mpi(MPI_Request request, std::string_view what) {
  constexpr std::chrono::microseconds longest_nap(1000);
  std::chrono::microseconds nap(20);
  for (int done = 0;; std::this_thread::sleep_for(nap), nap = std::min(2 * nap, longest_nap)) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    if (done) return;
  }
}

MPI_Comm copy_of(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(comm, &copy, &request), "copy a group");
  await_mpi(request, "copy a group");
  return copy;
}

MpiMembers::MpiMembers(MPI_Comm comm, int ends, const MpiMembers* world_group,
                       std::vector<int> world_ranks, double timeout_s)
    : ends_(ends), comms_{comm} {
  while (std::ssize(comms_) < ends * ends) comms_.push_back(copy_of(comm));
  for (const MPI_Comm each : comms_) MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm, &process_);
  MPI_Comm_size(comm, &processes_);
  node_of_world_rank_ = world_group ? world_group->node_of_world_rank_ : nodes_of_ranks();
  std::vector<int> nodes;
  for (const int rank : world_ranks) nodes.push_back(node_of_world_rank_[rank]);
  const auto ends_here = std::ranges::count(nodes, nodes[process_]);
  one_host_ = ends_here == std::ssize(nodes);
  ranks_per_node_ = lockstep::ranks_per_node(nodes);
  wait_times_ = world_group ? world_group->wait_times_ : std::make_shared<WaitTimes>(processes_);
  oversubscribed_ = ends_here > static_cast<int>(std::thread::hardware_concurrency());
  if (world_group) {
    heaps_ = world_group->heaps_;
    refused_peer_memory_ = world_group->refused_peer_memory_;
  } else if (one_host_) {
    heaps_ = PeerHeaps::open(comm);
    refused_peer_memory_ = lockstep::refused_peer_memory(comm);
  }

  // Staging, a showcase and a slot for each end, then the world's waits and notice. All but staging
  // are valid when zeroed.
  const std::size_t all = world_ranks.size();
  const std::size_t shared =
      alignof(Staging) +
      (sizeof(Staging) + sizeof(Showcase) + sizeof(BoardSlot) + sizeof(RankWaits)) * all +
      sizeof(AbortNotice);
  WorldBoard world = world_group ? world_group->board_->world() : WorldBoard{};
  if (one_host_) {
    std::size_t space = shared;
    void* memory = shared_memory(shared, world_ranks.front());
    staging_ = static_cast<Staging*>(std::align(alignof(Staging), 1, memory, space));
    showcases_ = reinterpret_cast<Showcase*>(staging_ + all);
    slots_ = reinterpret_cast<BoardSlot*>(showcases_ + all);
    auto* const waits = reinterpret_cast<RankWaits*>(slots_ + all);
    if (!world_group) world = {reinterpret_cast<AbortNotice*>(waits + all), {waits, all}};
    if (process_ == 0) {
      for (std::size_t i = 0; i < all; ++i) staging_[i].clear();
      std::memset(
          static_cast<void*>(showcases_), 0,
          (sizeof(Showcase) + sizeof(BoardSlot) + sizeof(RankWaits)) * all + sizeof(AbortNotice));
    }
    await_all("share memory");
  } else {
    private_slots_ = std::vector<BoardSlot>(all);
    slots_ = private_slots_.data();
    private_waits_ = std::vector<RankWaits>(all);
    if (!world_group) world = {&private_notice_, private_waits_};
  }
  for (int end = process_; end < processes_ * ends; end += processes_)
    slots_[end].process.store(getpid());
  board_ = std::make_unique<Board>(slots_, world, std::move(world_ranks), timeout_s, "mpi");
  board_->set_health_check([this](int peer) { return health(peer); });
  if (!one_host_) board_->set_distant(network_state);
  board_->set_stopped_check([this](int peer) { return state(peer) == 'T'; });
}

std::vector<int> MpiMembers::nodes_of_ranks() const {
  constexpr const char* what = "find the ranks of each host";
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(comms_.front(), MPI_COMM_TYPE_SHARED, process_, MPI_INFO_NULL, &host),
      what);
  int first_of_host = process_;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(&first_of_host, 1, MPI_INT, 0, host, &request), what);
  await_mpi(request, what);
  MPI_Comm_free(&host);
  std::vector<int> nodes(static_cast<std::size_t>(processes_));
  check_mpi(MPI_Iallgather(&first_of_host, 1, MPI_INT, nodes.data(), 1, MPI_INT, comms_.front(),
                           &request),
            what);
  await_mpi(request, what);
  return nodes;
}

void* MpiMembers::shared_memory(std::size_t bytes, int first_world_rank) {
  if (heaps_) {
    constexpr Count none = -1;
    Count place = none;
    if (process_ == 0) of_heap_ = heaps_->allocate(static_cast<Count>(bytes));
    if (of_heap_) place = heaps_->offset(of_heap_);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(&place, sizeof place, MPI_BYTE, 0, comms_.front(), &request),
              "share memory");
    await_mpi(request, "share memory");
    if (place != none) return heaps_->at(first_world_rank, place);
  }
  void* memory = nullptr;
  const auto own = static_cast<MPI_Aint>(process_ == 0 ? bytes : 0);
  check_mpi(MPI_Win_allocate_shared(own, 1, MPI_INFO_NULL, comms_.front(), &memory, &window_),
            "share memory", shared_memory_hint(bytes));
  MPI_Aint size = 0;
  int unit = 0;
  MPI_Win_shared_query(window_, 0, &size, &unit, &memory);
  return memory;
}

void MpiMembers::await_all(std::string_view what) const {
  MPI_Request all_came = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comms_.front(), &all_came), what);
  await_mpi(all_came, what);
}

// After a failure the process ends anyway.
MpiMembers::~MpiMembers() {
  if (closed_ || std::uncaught_exceptions() > 0 || board_->notice().rank() >= 0) return;
  try {
    close();
  } catch (const Error& error) {
    board_->notice().raise(board_->world_rank(process_), error);
  }
}

void MpiMembers::close() {
  if (closed_) return;
  board_->check_notice(process_, -1, {});
  MPI_Request all_came = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comms_.front(), &all_came), "end a group");
  const auto ready = [&] {
    int done = 0;
    check_mpi(MPI_Test(&all_came, &done, MPI_STATUS_IGNORE), "end a group");
    return done != 0;
  };
  constexpr auto nap = std::chrono::microseconds(20);
  board_->wait_for_ends(process_, one_host_, ready, [&] { std::this_thread::sleep_for(nap); });
  closed_ = true;
  // The others have also arrived, but may still read the board.
  await_all("end a group");
  if (of_heap_) heaps_->release(of_heap_);
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
}

char MpiMembers::state(int peer) const {
  constexpr char unknown = ' ', dead = 'X';
  const std::int32_t process = slots_[peer].process.load();
  if (!one_host_ || process == 0) return unknown;
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  if (!std::getline(file, line)) return dead;
  // The state is the letter after the name, which is in parentheses and may contain any character.
  const std::size_t end = line.rfind(')');
  return end == std::string::npos || end + 2 >= line.size() ? unknown : line[end + 2];
}

std::string MpiMembers::health(int peer) const {
  const char letter = state(peer);
  const bool dead = letter == 'X' || letter == 'Z';
  return dead ? fmt::format("(process {}) has died", slots_[peer].process.load()) : "";
}

}  // namespace lockstep
