// A rank's end of a group of MPI processes.
#include "collectives/transport/mpi/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/transport/mpi/messages.h"
#include "collectives/transport/mpi/shared_memory.h"
#include "collectives/transport/mpi/vendor.h"

namespace lockstep {
namespace {

class MpiWindow final : public Window {
 public:
  MpiWindow(Windows& windows, std::int64_t number) : windows_(windows), number_(number) {}
  ~MpiWindow() override { windows_.close(number_); }

 private:
  Windows& windows_;
  std::int64_t number_;
};

class MpiTransport final : public Transport,
                           public OperationBoard,
                           public FailureBoard,
                           public Network,
                           public ReceiveWindows {
 public:
  explicit MpiTransport(std::unique_ptr<MpiGroup> group)
      : Transport({.clock = &wall_clock(),
                   .failures = this,
                   .network = this,
                   .operations = this,
                   .windows = this,
                   .waits = &group->members().wait_times()}),
        group_(std::move(group)),
        vendor_(*group_),
        sent_(static_cast<std::size_t>(group_->size())),
        received_(sent_.size()) {
    // MPI's own collectives count a process as one rank.
    if (group_->members().ends() == 1) capabilities_.vendor = &vendor_;
    if (group_->members().heaps()) capabilities_.shared_memory = &shared_memory_.emplace(*group_);
  }
  ~MpiTransport() override {
    if (std::uncaught_exceptions() == 0) board().end(rank());
  }

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  void enter(const Call& call) override {
    board().enter(rank(), call.signature);
    board().check_notice(rank(), -1, call);
  }
  void leave() override { board().leave(rank()); }

  Request isend(const Call& call, Slice data, int to) override {
    return std::make_unique<MpiSend>(*group_, call, data, to, sent_[to]++, data.bytes());
  }
  Request irecv(const Call& call, Slice data, int from) override {
    ++received_[from];
    return std::make_unique<MpiReceive>(*group_, call, data, from, std::nullopt, data.bytes());
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    ++received_[from];
    return std::make_unique<MpiReceive>(*group_, call, growing, from, op, growing.bytes());
  }
  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) override {
    Staging* const staging = group_->members().staging(rank());
    const PeerHeaps* const heaps = group_->members().heaps();
    if (!staging || !heaps || !heaps->holds(data.data)) return nullptr;
    const std::int64_t number = received_[from] + ahead;
    const bool opened =
        staging->windows().open({from, number, data.bytes()}, heaps->offset(data.data));
    return opened ? std::make_unique<MpiWindow>(staging->windows(), number) : nullptr;
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    exchange(call, leaving, to, arriving, from, std::nullopt);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    exchange(call, leaving, to, growing, from, op);
  }

  std::size_t wait_any(const Call& call, std::span<const Request> receives,
                       std::span<const int> from) override {
    std::span<const Request>::iterator first;
    group_->wait_until(from, call, [&] {
      first = std::ranges::find_if(receives,
                                   [](const Request& r) { return r->arrives_at().has_value(); });
      return first != receives.end();
    });
    return static_cast<std::size_t>(first - receives.begin());
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    require(group_->members().ends() == 1, "a subgroup of a group with two ends per rank");
    MPI_Group all, some;
    MPI_Comm_group(own_comm(), &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_create_group(own_comm(), some, header_tag, &comm), "make a subgroup");
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(board().world_rank(member));
    return mpi_transport(std::make_shared<MpiMembers>(comm, 1, &group_->members(),
                                                      std::move(world_ranks), board().timeout_s()),
                         0);
  }
  TwoEnds two_ends() override {
    const auto members =
        std::make_shared<MpiMembers>(copy_of(own_comm()), 2, &group_->members(),
                                     board().world_ranks_twice(), board().timeout_s());
    return {mpi_transport(members, 0), mpi_transport(members, 1)};
  }

  bool abort(const std::exception& cause) override {
    return board().notice().raise(board().world_rank(rank()), cause);
  }
  void depart() override { board().end(rank()); }
  void abandon() override { board().notice().claim(board().world_rank(rank())); }
  Stop stopper() override {
    return [members = group_->shared_members()](std::string_view signal) {
      if (!members->closed()) members->board().interrupt(signal);
    };
  }

  int ranks_per_node() const override { return group_->members().ranks_per_node(); }
  std::vector<std::string> hindrances() const override {
    std::vector<std::string> all;
    if (const std::string& refused = group_->members().refused_peer_memory(); !refused.empty())
      all.push_back(fmt::format(
          "the system refuses to copy between processes (process_vm_readv: {}), so MPI libraries "
          "copy long messages twice; in a container, allow SYS_PTRACE",
          refused));
    if (group_->members().one_host() && !group_->members().heaps())
      all.push_back(
          "the system does not let the ranks see each other's memory (memfd_create, or "
          "/proc/PID/fd of another process), so long messages are copied twice");
    return all;
  }

 private:
  Board& board() { return group_->board(); }
  MPI_Comm own_comm() { return group_->comm_to(rank()); }

  // Both sides cut the data into the same pieces, which go through shared memory a few at a time.
  // So a fixed number of places suffices for data of any length.
  void exchange(const Call& call, Slice leaving, int to, Slice arriving, int from,
                std::optional<ReduceOp> op) {
    if (std::max(leaving.bytes(), arriving.bytes()) <= Staging::place_bytes) {
      ++received_[from];
      MpiReceive receiving(*group_, call, arriving, from, op, arriving.bytes());
      MpiSend sending(*group_, call, leaving, to, sent_[to]++, leaving.bytes());
      receiving.wait();
      return sending.wait();
    }
    constexpr std::size_t ahead = 2;
    const auto out = pieces_of(leaving), in = pieces_of(arriving);
    std::deque<MpiSend> sending;
    std::deque<MpiReceive> receiving;
    std::size_t sent = 0, posted = 0;
    for (std::size_t i = 0; i < std::max(out.size(), in.size()); ++i) {
      for (; posted < std::min(i + ahead, in.size()); ++posted, ++received_[from])
        receiving.emplace_back(*group_, call, in[posted], from, op, arriving.bytes());
      for (; sent < std::min(i + ahead, out.size()); ++sent)
        sending.emplace_back(*group_, call, out[sent], to, sent_[to]++, leaving.bytes());
      if (!receiving.empty()) {
        receiving.front().wait();
        receiving.pop_front();
      }
      for (; sending.size() > 2 * ahead; sending.pop_front()) sending.front().wait();
    }
    for (MpiSend& send : sending) send.wait();
  }

  // One piece if cutting would gain nothing.
  std::vector<Slice> pieces_of(Slice data) {
    std::vector<Slice> pieces;
    const Count length = group_->members().staging(rank())
                             ? Staging::place_bytes / element_bytes(data.dtype)
                             : std::max<Count>(data.count, 1);
    for (Count begin = 0; begin < std::max<Count>(data.count, 1); begin += length)
      pieces.push_back(data.part(begin, std::min(length, data.count - begin)));
    return pieces;
  }

  std::unique_ptr<MpiGroup> group_;
  MpiCollectives vendor_;
  std::optional<MpiSharedMemory> shared_memory_;
  std::vector<std::int64_t> sent_, received_;  // messages to and from each rank
};

}  // namespace

std::unique_ptr<Transport> mpi_transport(std::shared_ptr<MpiMembers> members, int end) {
  return std::make_unique<MpiTransport>(std::make_unique<MpiGroup>(std::move(members), end));
}

}  // namespace lockstep
