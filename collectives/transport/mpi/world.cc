// The module's entry: joins the world that mpirun started, and leaves it in order or after a
// failure.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "collectives/transport/modules/process_world.h"
#include "collectives/transport/mpi/agreement.h"
#include "collectives/transport/mpi/start_watchdog.h"
#include "collectives/transport/mpi/transport.h"

namespace lockstep {
namespace {

class MpiWorld final : public ProcessWorld {
 public:
  explicit MpiWorld(const Joining& joining) {
    const StartWatchdog watchdog(joining);
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "start");
    require(provided == MPI_THREAD_MULTIPLE,
            "this MPI library does not let several threads communicate",
            "use one built with MPI_THREAD_MULTIPLE");
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    require_one_world(size, joining);
    const MPI_Comm comm = copy_of(MPI_COMM_WORLD);
    require_agreement(comm, joining);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    members_ = std::make_shared<MpiMembers>(comm, 1, nullptr, std::move(ranks), joining.timeout_s);
    unfinished = new std::shared_ptr<MpiMembers>(members_);
    std::atexit(end_unfinished);
  }

  std::unique_ptr<Transport> transport() override { return mpi_transport(members_, 0); }

  void finish() override {
    members_->close();
    delete std::exchange(unfinished, nullptr);
    // MPICH 4.0.2 over TCP: a rank that has left MPI_Finalize's first part no longer answers, and another one
    // waits there for its answers to long messages. Most of them arrive while all ranks are in barriers.
    constexpr int barriers = 3;
    for (int i = 0; i < barriers; ++i) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
  }

  void fail(const std::exception& cause) override {
    // The process still has to report its failure, so the rest runs at exit.
    members_->board().notice().raise(members_->process(), cause);
  }

 private:
  static void require_one_world(int size, const Joining& joining) {
    if (size == joining.processes) return;
    MPI_Finalize();
    require(
        false,
        fmt::format("{}, but MPI has joined only {}: the ranks would be separate runs",
                    joining.launcher, size),
        "start them with the mpirun of the library that this process uses, or with srun "
        "--mpi=pmix for Open MPI and --mpi=pmi2 for MPICH; if no launcher started this process, "
        "unset the variable");
  }

  // The state of a world that has not ended in order. Never freed: threads may still use it at
  // exit.
  inline static std::shared_ptr<MpiMembers>* unfinished = nullptr;

  // mpirun kills all processes when the first one ends, so wait until the others have reported.
  // Then the rank that failed first ends the job, with the status of its failure.
  static void end_unfinished() {
    if (!unfinished) return;
    MpiMembers& members = **unfinished;
    Board& board = members.board();
    if (board.notice().rank() < 0)
      board.notice().raise(members.process(), Error(ErrorKind::lost_rank, "called exit()"));
    board.end(members.process());
    constexpr auto patience = std::chrono::milliseconds(1500);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!board.all_ended() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    std::fflush(nullptr);
    remove_mapped_segments();
    exit_status = Error(board.notice().kind, "").exit_status();
    if (board.notice().rank() != board.world_rank(members.process())) _exit(exit_status);
    // MPICH's MPI_Abort may hang if mpirun was told not to clean up.
    std::signal(SIGALRM, [](int) { _exit(exit_status); });
    constexpr unsigned seconds_to_abort = 1;
    alarm(seconds_to_abort);
    MPI_Abort(members.comm(0, 0), exit_status);
  }

  // Unlinks the library's shared-memory segments of this job, which killed processes leave behind.
  static void remove_mapped_segments() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      const std::size_t path = line.find("/dev/shm/");
      if (path != std::string::npos) unlink(line.c_str() + path);
    }
  }

  inline static int exit_status = 0;
  std::shared_ptr<MpiMembers> members_;
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::ProcessWorld* lockstep_open_world(const lockstep::Joining& joining) {
  return new lockstep::MpiWorld(joining);
}
