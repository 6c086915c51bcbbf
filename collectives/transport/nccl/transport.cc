// A rank's end of a group in which each rank has its own GPU.
#include "collectives/transport/nccl/transport.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>

#include "collectives/transport/decorators/decorator.h"
#include "collectives/transport/nccl/ask.h"
#include "collectives/transport/nccl/vendor.h"

namespace lockstep {
namespace {

// Precedes the data, over the control.
struct Header {
  enum Place : std::int64_t { behind, on_host, on_gpu };
  Place place;           // of the data: behind this header, or exposed
  std::int64_t exposed;  // the number of exposed data
  Count count;
  std::int64_t dtype;
};

// A message's header with room for short data of the host. It tells the receiver on which device
// the sender's data are.
struct Packet {
  Header header;
  std::array<std::byte, 4096> data;
};

bool lies_on_gpu(Slice data) { return data.device->enqueues(); }

// One rank's end of a group.
struct End {
  std::shared_ptr<NcclRank> rank;
  Transport* control;
  std::vector<int> world_ranks;

  int world_rank(int member) const { return world_ranks[static_cast<std::size_t>(member)]; }
  // If the control reports only that this rank has failed, throws this rank's failure instead.
  template <typename Body>
  auto call(Body body) {
    rank->failure().check();
    try {
      return body();
    } catch (const Error&) {
      rank->failure().check();
      throw;
    }
  }
  void check_size(const Call& call, int from, Slice into, const Header& header) const {
    if (header.count == into.count && header.dtype == static_cast<std::int64_t>(into.dtype)) return;
    const int peer = world_rank(from);
    throw Error(
        ErrorKind::mismatch, fmt::format("a message from rank {} has the wrong size", peer),
        {.rank = world_rank(control->rank()),
         .size = control->size(),
         .peer = peer,
         .sequence = call.signature.sequence,
         .operation = fmt::format("{} over nccl", name_of(call.signature.operation)),
         .expected = fmt::format("{} {}", into.count, name_of(into.dtype)),
         .got = fmt::format("{} {}", header.count, name_of(static_cast<DType>(header.dtype)))});
  }
};

class NcclSend final : public Transfer {
 public:
  NcclSend(End& end, const Call& call, Slice data, int to)
      : end_(end), call_(call), to_(to), packet_(std::make_unique_for_overwrite<Packet>()) {
    const bool fits = !lies_on_gpu(data) && data.bytes() <= std::ssize(packet_->data);
    packet_->header = {Header::behind, 0, data.count, static_cast<std::int64_t>(data.dtype)};
    if (fits || data.count == 0) {
      if (data.count > 0) std::memcpy(packet_->data.data(), data.data, data.bytes());
    } else {
      exposed_ = end.rank->expose(data);
      packet_->header.place = lies_on_gpu(data) ? Header::on_gpu : Header::on_host;
      packet_->header.exposed = exposed_->number;
    }
    announcing_ = end.call([&] { return end.control->isend(call, bytes_of(*packet_), to); });
  }
  ~NcclSend() override {
    if (exposed_ && !finished_) end_.rank->withdraw(*exposed_);
  }
  void wait() override {
    if (finished_) return;
    end_.call([&] { announcing_->wait(); });
    if (exposed_) end_.rank->wait(*exposed_, call_, end_.world_rank(to_));
    finished_ = true;
  }

 private:
  End& end_;
  Call call_;
  int to_;
  std::unique_ptr<Packet> packet_;
  std::shared_ptr<ExposedData> exposed_;
  Request announcing_;
  bool finished_ = false;
};

class NcclReceive final : public Transfer {
 public:
  // With an operation, reduces the message into `into`; without one, copies it there.
  NcclReceive(End& end, const Call& call, Slice into, int from, std::optional<ReduceOp> op)
      : end_(end),
        call_(call),
        into_(into),
        from_(from),
        op_(op),
        packet_(std::make_unique_for_overwrite<Packet>()),
        announced_(end.call([&] { return end.control->irecv(call, bytes_of(*packet_), from); })) {}
  void wait() override {
    if (finished_) return;
    end_.call([&] { announced_->wait(); });
    end_.check_size(call_, from_, into_, packet_->header);
    if (into_.count > 0) take();
    finished_ = true;
  }
  std::optional<double> arrives_at() override { return announced_->arrives_at(); }

 private:
  void take() {
    const Header& header = packet_->header;
    if (header.place == Header::behind)
      return use({packet_->data.data(), into_.count, into_.dtype, &host_device()});
    const bool comes_on_gpu = header.place == Header::on_gpu;
    const auto fetch = [&](Slice target) {
      end_.call([&] { end_.rank->fetch(end_.world_rank(from_), header.exposed, target); });
    };
    if (!op_ && comes_on_gpu == lies_on_gpu(into_)) return fetch(into_);
    const Memory there = scratch(comes_on_gpu ? end_.rank->gpu() : host_device());
    const Slice arrived = there.slice(into_.count, into_.dtype);
    fetch(arrived);
    use(arrived);
  }
  void use(Slice arrived) {
    if (!op_) return into_.device->copy(into_, arrived);
    if (arrived.device == into_.device) return into_.device->reduce(into_, arrived, *op_);
    const Memory staged = scratch(*into_.device);
    const Slice copied = staged.slice(into_.count, into_.dtype);
    into_.device->copy(copied, arrived);
    into_.device->reduce(into_, copied, *op_);
  }
  Memory scratch(Device& device) const {
    return Memory(device, nullptr, MemoryUse::communication, into_.bytes());
  }

  End& end_;
  Call call_;
  Slice into_;
  int from_;
  std::optional<ReduceOp> op_;
  std::unique_ptr<Packet> packet_;
  Request announced_;
  bool finished_ = false;
};

class NcclTransport final : public TransportDecorator, public OperationBoard {
 public:
  // Without a communicator, every exchange is two single messages.
  NcclTransport(std::shared_ptr<NcclRank> rank, std::unique_ptr<Transport> control,
                std::vector<int> world_ranks, std::shared_ptr<NcclComm> comm)
      : TransportDecorator(std::move(control)),
        end_{std::move(rank), inner_.get(), std::move(world_ranks)},
        comm_(std::move(comm)) {
    if (comm_) vendor_.emplace(*end_.rank, *comm_);
    capabilities_.operations = this;
    capabilities_.vendor = vendor_ ? &*vendor_ : nullptr;
    // Ranks cannot access each other's data on different GPUs, and the control's messages carry
    // headers.
    capabilities_.shared_memory = nullptr;
    capabilities_.windows = nullptr;
  }

  std::string_view name() const override { return "nccl"; }
  void enter(const Call& call) override {
    end_.call([&] { inner_->enter(call); });
  }
  void leave() override { inner_->leave(); }

  Request isend(const Call& call, Slice data, int to) override {
    return std::make_unique<NcclSend>(end_, call, data, to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    return std::make_unique<NcclReceive>(end_, call, data, from, std::nullopt);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return std::make_unique<NcclReceive>(end_, call, growing, from, op);
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    if (!lies_on_gpu(leaving)) return inner_->send_recv(call, leaving, to, arriving, from);
    exchange(call, leaving, to, arriving, from, std::nullopt);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    if (!lies_on_gpu(leaving))
      return inner_->send_recv_reduce(call, leaving, to, growing, from, op);
    exchange(call, leaving, to, growing, from, op);
  }
  std::size_t wait_any(const Call& call, std::span<const Request> receives,
                       std::span<const int> from) override {
    return end_.call([&] { return inner_->wait_any(call, receives, from); });
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(end_.world_rank(member));
    return end_.call([&]() -> std::unique_ptr<Transport> {
      auto group = inner_->subgroup(members);
      // A rank's messages to itself do not leave its GPU.
      if (group->size() == 1)
        return std::make_unique<NcclTransport>(end_.rank, std::move(group), world_ranks, nullptr);
      return nccl_transport(end_.rank, std::move(group), world_ranks);
    });
  }
  // NCCL allows one rank per GPU, so the two ends have no communicator.
  TwoEnds two_ends() override {
    std::vector<int> twice = end_.world_ranks;
    twice.insert(twice.end(), end_.world_ranks.begin(), end_.world_ranks.end());
    TwoEnds ends = inner_->two_ends();
    for (auto& end : ends)
      end = std::make_unique<NcclTransport>(end_.rank, std::move(end), twice, nullptr);
    return ends;
  }

 private:
  // Both messages in one kernel: neither can finish without the other.
  void exchange(const Call& call, Slice leaving, int to, Slice arriving, int from,
                std::optional<ReduceOp> op) {
    if (!comm_) {
      NcclSend sending(end_, call, leaving, to);
      NcclReceive(end_, call, arriving, from, op).wait();
      return sending.wait();
    }
    Header out{Header::on_gpu, 0, leaving.count, static_cast<std::int64_t>(leaving.dtype)}, in{};
    end_.call([&] { inner_->send_recv(call, bytes_of(out), to, bytes_of(in), from); });
    end_.check_size(call, from, arriving, in);
    Memory scratch;
    Slice target = arriving;
    if (op) {
      scratch = Memory(*arriving.device, nullptr, MemoryUse::communication, arriving.bytes());
      target = scratch.slice(arriving.count, arriving.dtype);
    }
    const cudaStream_t stream = end_.rank->stream();
    comm_->call("exchange", [&](ncclComm_t comm) {
      const auto bytes = [](Slice data) { return static_cast<std::size_t>(data.bytes()); };
      ncclGroupStart();
      if (leaving.count > 0) ncclSend(leaving.data, bytes(leaving), ncclInt8, to, comm, stream);
      if (target.count > 0) ncclRecv(target.data, bytes(target), ncclInt8, from, comm, stream);
      return ncclGroupEnd();
    });
    end_.rank->expect_end(
        stream,
        fmt::format("an exchange of {} bytes to rank {} and {} from rank {}", leaving.bytes(),
                    end_.world_rank(to), target.bytes(), end_.world_rank(from)));
    if (op) arriving.device->reduce(arriving, target, *op);
  }

  End end_;
  std::shared_ptr<NcclComm> comm_;
  std::optional<NcclCollectives> vendor_;
};

}  // namespace

std::unique_ptr<Transport> nccl_transport(std::shared_ptr<NcclRank> rank,
                                          std::unique_ptr<Transport> control,
                                          std::vector<int> world_ranks) {
  auto comm = rank->connect(*control);
  return std::make_unique<NcclTransport>(std::move(rank), std::move(control),
                                         std::move(world_ranks), std::move(comm));
}

}  // namespace lockstep
