// Messages over MPI. A message is a header, with the data in it when they are few; longer data
// follow in segments, whose receives are posted only after the header was found to fit: so ranks
// that disagree are told how, and never by MPI.
#include "collectives/transport/mpi/transport.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <optional>

#include "collectives/base/device.h"
#include "collectives/transport/mpi/vendor.h"

namespace lockstep {
namespace {

constexpr Count segment_bytes = Count{512} << 10;
constexpr int header_tag = 0;
constexpr std::int64_t data_tags = 30'000;  // MPI promises 32767

int data_tag(std::int64_t number) { return 1 + static_cast<int>(number % data_tags); }

std::vector<Slice> segments_of(Slice data) {
  std::vector<Slice> segments;
  const Count length = segment_bytes / element_bytes(data.dtype);
  for (Count begin = 0; begin < data.count; begin += length)
    segments.push_back(data.part(begin, std::min(length, data.count - begin)));
  return segments;
}

class MpiSend final : public Transfer {
 public:
  MpiSend(MpiGroup& group, const Call& call, Slice data, int to, std::int64_t number)
      : group_(group), call_(call), to_(to), packet_(group.packets().take()) {
    packet_->header = {call.signature, data.bytes(), number};
    const bool fits = data.bytes() <= Packet::inline_bytes;
    if (fits && data.count > 0)
      std::memcpy(packet_->data.data(), data.data, static_cast<std::size_t>(data.bytes()));
    post(packet_.get(),
         static_cast<int>(sizeof(Header)) + static_cast<int>(fits ? data.bytes() : 0), header_tag);
    if (!fits)
      for (const Slice& segment : segments_of(data))
        post(segment.data, static_cast<int>(segment.bytes()), data_tag(number));
  }
  // MPI cannot take back a send. It happens when this rank fails: the packet stays for MPI to read
  // until the process ends.
  ~MpiSend() override {
    if (finished_) return;
    group_.settle();
    static_cast<void>(packet_.release());
  }
  void wait() override {
    for (MPI_Request& request : requests_) group_.wait(to_, call_, request);
    finished_ = true;
    if (packet_) group_.packets().give_back(std::move(packet_));
  }

 private:
  void post(const void* data, int bytes, int tag) {
    check_mpi(MPI_Isend(data, bytes, MPI_BYTE, to_, tag, group_.comm(), &requests_.emplace_back()),
              "send");
  }

  MpiGroup& group_;
  Call call_;
  int to_;
  std::unique_ptr<Packet> packet_;
  std::vector<MPI_Request> requests_;
  bool finished_ = false;
};

// A receive in flight: withdrawn when it is destroyed unfinished, so that nothing is written to its
// memory afterwards.
class PostedReceive {
 public:
  PostedReceive(MpiGroup& group, void* into, Count bytes, int from, int tag)
      : group_(group), from_(from) {
    check_mpi(
        MPI_Irecv(into, static_cast<int>(bytes), MPI_BYTE, from, tag, group.comm(), &request_),
        "receive");
  }
  ~PostedReceive() {
    // After a failure nothing moves any more, so nothing is written.
    if (request_ == MPI_REQUEST_NULL || group_.board().notice().rank() >= 0) return;
    MPI_Cancel(&request_);
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
  }
  PostedReceive(const PostedReceive&) = delete;
  void wait(const Call& call) { group_.wait(from_, call, request_); }

 private:
  MpiGroup& group_;
  int from_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiReceive final : public Transfer {
 public:
  // With an operation the message is combined into `into`, else it arrives there.
  MpiReceive(MpiGroup& group, const Call& call, Slice into, int from, std::optional<ReduceOp> op)
      : group_(group),
        call_(call),
        into_(into),
        from_(from),
        op_(op),
        packet_(group.packets().take()),
        header_(group, packet_.get(), sizeof(Packet), from, header_tag) {}

  void wait() override {
    if (finished_) return;
    if (op_)
      receive([&](Slice part, Slice arrived) { part.device->reduce(part, arrived, *op_); }, false);
    else
      receive([&](Slice part, Slice arrived) { part.device->copy(part, arrived); }, true);
  }

 private:
  template <typename Use>
  void receive(Use use, bool in_place) {
    header_.wait(call_);
    group_.board().match(group_.rank(), from_, call_, packet_->header.signature);
    if (packet_->header.bytes != into_.bytes()) throw_size();
    if (into_.bytes() <= Packet::inline_bytes) {
      use(into_, {packet_->data.data(), into_.count, into_.dtype, into_.device});
    } else {
      receive_segments(use, in_place);
    }
    finished_ = true;
    group_.packets().give_back(std::move(packet_));
  }

  // Two segments are on their way while a third is used; in place, they arrive where they belong.
  template <typename Use>
  void receive_segments(Use use, bool in_place) {
    constexpr Count ahead = 2;
    const auto segments = segments_of(into_);
    std::byte* const scratch =
        in_place
            ? nullptr
            : group_.scratch(*into_.device,
                             std::min(static_cast<Count>(segments.size()), ahead) * segment_bytes);
    std::optional<PostedReceive> posted[ahead];
    const auto target = [&](std::size_t i) {
      const Count offset = static_cast<Count>(i) % ahead * segment_bytes;
      return in_place ? segments[i]
                      : Slice{scratch + offset, segments[i].count, into_.dtype, into_.device};
    };
    const auto post = [&](std::size_t i) {
      if (i < segments.size())
        posted[i % ahead].emplace(group_, target(i).data, target(i).bytes(), from_,
                                  data_tag(packet_->header.number));
    };
    for (std::size_t i = 0; i < ahead; ++i) post(i);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      posted[i % ahead]->wait(call_);
      if (!in_place) use(segments[i], target(i));
      post(i + ahead);
    }
  }

  [[noreturn]] void throw_size() const {
    ErrorContext context = group_.board().context(group_.rank(), from_, call_);
    context.expected = fmt::format("{} bytes", into_.bytes());
    context.got = fmt::format("{} bytes", packet_->header.bytes);
    throw Error(ErrorKind::mismatch,
                fmt::format("a message from rank {} has another size", context.peer), context);
  }

  MpiGroup& group_;
  Call call_;
  Slice into_;
  int from_;
  std::optional<ReduceOp> op_;
  std::unique_ptr<Packet> packet_;
  PostedReceive header_;
  bool finished_ = false;
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::shared_ptr<MpiGroup> group)
      : group_(std::move(group)),
        vendor_(*group_),
        sent_(static_cast<std::size_t>(group_->size())) {}
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
    return std::make_unique<MpiSend>(*group_, call, data, to, sent_[to]++);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    return std::make_unique<MpiReceive>(*group_, call, data, from, std::nullopt);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return std::make_unique<MpiReceive>(*group_, call, growing, from, op);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    MpiReceive receiving(*group_, call, growing, from, op);
    MpiSend sending(*group_, call, leaving, to, sent_[to]++);
    receiving.wait();
    sending.wait();
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    MPI_Group all, some;
    MPI_Comm_group(group_->comm(), &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_create_group(group_->comm(), some, header_tag, &comm), "make a subgroup");
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(board().world_rank(member));
    return mpi_transport(std::make_shared<MpiGroup>(comm, &board().notice(), std::move(world_ranks),
                                                    board().timeout_s()));
  }

  bool abort(const std::exception& cause) override {
    return board().notice().raise(board().world_rank(rank()), cause);
  }
  void abandon() override { board().notice().claim(board().world_rank(rank())); }

  int ranks_per_node() const override { return group_->ranks_per_node(); }
  double now_seconds() const override { return steady_seconds(); }
  double about_now_seconds() const override { return about_steady_seconds(); }

  VendorCollectives* vendor() override { return &vendor_; }

 private:
  Board& board() { return group_->board(); }

  std::shared_ptr<MpiGroup> group_;
  MpiCollectives vendor_;
  std::vector<std::int64_t> sent_;  // messages to each rank
};

}  // namespace

std::unique_ptr<Transport> mpi_transport(std::shared_ptr<MpiGroup> group) {
  return std::make_unique<MpiTransport>(std::move(group));
}

}  // namespace lockstep
