// The two sides of a message over MPI. Every message has a header; short data follow in the same
// packet. Longer data travel in one of four ways. With an open window, the sender writes into the
// receiver's memory. If the data lie in a shared heap, the receiver reads them there. Otherwise the
// sender copies them to shared memory while it has room. Otherwise they follow as MPI messages, in
// segments. The receiver posts those only after it has checked the header, so a mismatch is
// reported by us and not by MPI.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/transport/mpi/group.h"

namespace lockstep {

inline constexpr Count segment_bytes = Count{512} << 10;
// Shorter data travel with their header. MPI libraries send up to about 4 KiB eagerly.
inline constexpr Count fewest_staged_bytes = 3072;
// For shorter data and ranks that share a core, waiting for the receiver costs more than a copy.
inline constexpr Count fewest_exposed_bytes = Count{16} << 10;
inline constexpr std::int64_t data_tags = 30'000;  // MPI guarantees 32767

inline int data_tag(std::int64_t number) { return 1 + static_cast<int>(number % data_tags); }

inline std::vector<Slice> segments_of(Slice data) {
  std::vector<Slice> segments;
  const Count length = segment_bytes / element_bytes(data.dtype);
  for (Count begin = 0; begin < data.count; begin += length)
    segments.push_back(data.part(begin, std::min(length, data.count - begin)));
  return segments;
}

class MpiSend final : public Transfer {
 public:
  // `whole_bytes`: the size of the whole message; `data` are a piece of it.
  MpiSend(MpiGroup& group, const Call& call, Slice data, int to, std::int64_t number,
          Count whole_bytes)
      : group_(group),
        call_(call),
        to_(to),
        staging_(group.members().staging(group.rank())),
        packet_(group.packets().take()) {
    packet_->header = {call.signature, data.bytes(), whole_bytes, number, Staging::none, 0};
    find_place(data);
    const bool fits = place_ == Staging::none && data.bytes() <= Packet::inline_bytes;
    if (fits && data.count > 0)
      std::memcpy(packet_->data.data(), data.data, static_cast<std::size_t>(data.bytes()));
    post(packet_.get(),
         static_cast<int>(sizeof(Header)) + static_cast<int>(fits ? data.bytes() : 0), header_tag);
    if (!fits && place_ == Staging::none)
      for (const Slice& segment : segments_of(data))
        post(segment.data, static_cast<int>(segment.bytes()), data_tag(number));
  }
  // MPI cannot cancel a send, so the packet stays until the process ends. This happens when this
  // rank fails, and when it or the receiver has departed.
  ~MpiSend() override {
    if (finished_) return;
    const Board& board = group_.board();
    if (!board.has_ended(to_) && !board.has_ended(group_.rank())) group_.settle();
    PacketPool::keep(std::move(packet_));
  }
  void wait() override {
    if (finished_) return;
    for (MPI_Request& request : requests_) group_.wait(to_, call_, request);
    if (is_exposed()) group_.wait(to_, call_, [&] { return reclaim(); });
    finished_ = true;
    if (packet_) group_.packets().give_back(std::move(packet_));
  }

 private:
  // Writes the data into a window, exposes them in the shared heap, or copies them to staging, if
  // one of these is possible.
  void find_place(Slice data) {
    if (!staging_ || data.bytes() < fewest_staged_bytes) return;
    Header& header = packet_->header;
    if (data.bytes() >= fewest_exposed_bytes && heaps()) {
      if (put(data)) return;
      if (heaps()->holds(data.data)) place_ = staging_->expose();
      if (is_exposed()) header.offset = heaps()->offset(data.data);
    }
    if (place_ == Staging::none && data.bytes() <= Staging::place_bytes) {
      place_ = staging_->take();
      if (place_ != Staging::none)
        data.device->copy({staging_->data(place_), data.count, data.dtype, data.device}, data);
    }
    if (place_ != Staging::none) staging_->show(place_);
    header.place = place_;
  }
  bool put(Slice data) {
    Header& header = packet_->header;
    Windows& windows = group_.members().staging(to_)->windows();
    const auto offset = windows.take({group_.rank(), header.number, header.bytes});
    if (!offset) return false;
    std::byte* const there = heaps()->at(group_.board().world_rank(to_), *offset);
    data.device->copy({there, data.count, data.dtype, data.device}, data);
    windows.filled(header.number);
    header.place = place_ = Staging::window;
    header.offset = *offset;
    return true;
  }
  bool is_exposed() const { return Staging::is_exposed(place_); }
  const PeerHeaps* heaps() const { return group_.members().heaps(); }
  bool reclaim() {
    if (staging_->reclaim(place_)) return true;
    group_.make_progress(to_);
    return false;
  }
  void post(const void* data, int bytes, int tag) {
    check_mpi(MPI_Isend(data, bytes, MPI_BYTE, group_.process(to_), tag, group_.comm_to(to_),
                        &requests_.emplace_back()),
              "send");
  }

  MpiGroup& group_;
  Call call_;
  int to_;
  Staging* staging_;
  int place_ = Staging::none;
  std::unique_ptr<Packet> packet_;
  std::vector<MPI_Request> requests_;
  bool finished_ = false;
};

// A receive in flight. Destroyed unfinished, it is cancelled, and MPI no longer writes to its
// memory.
class PostedReceive {
 public:
  PostedReceive(MpiGroup& group, void* into, Count bytes, int from, int tag)
      : group_(group), from_(from) {
    check_mpi(MPI_Irecv(into, static_cast<int>(bytes), MPI_BYTE, group.process(from), tag,
                        group.comm_from(from), &request_),
              "receive");
  }
  ~PostedReceive() {
    // After a failure no rank moves data, so nothing is written.
    if (request_ == MPI_REQUEST_NULL || group_.board().notice().rank() >= 0) return;
    MPI_Cancel(&request_);
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
  }
  PostedReceive(const PostedReceive&) = delete;
  void wait(const Call& call) { group_.wait(from_, call, request_); }
  bool arrived() {
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "look for a message");
    return done != 0;
  }

 private:
  MpiGroup& group_;
  int from_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiReceive final : public Transfer {
 public:
  // With an operation, reduces the message into `into`; without one, copies it there.
  MpiReceive(MpiGroup& group, const Call& call, Slice into, int from, std::optional<ReduceOp> op,
             Count whole_bytes)
      : group_(group),
        call_(call),
        into_(into),
        from_(from),
        op_(op),
        whole_bytes_(whole_bytes),
        packet_(group.packets().take()),
        header_(group, packet_.get(), sizeof(Packet), from, header_tag) {}
  // After a failure the receive is not cancelled, and MPI may still write to the packet: another
  // thread of this rank may be in one of its calls.
  ~MpiReceive() override {
    if (!finished_ && group_.board().notice().rank() >= 0) PacketPool::keep(std::move(packet_));
  }

  void wait() override {
    if (finished_) return;
    if (op_)
      receive([&](Slice part, Slice arrived) { part.device->reduce(part, arrived, *op_); }, false);
    else
      receive([&](Slice part, Slice arrived) { part.device->copy(part, arrived); }, true);
  }
  std::optional<double> arrives_at() override {
    if (!header_.arrived()) return std::nullopt;
    return 0;
  }

 private:
  template <typename Use>
  void receive(Use use, bool in_place) {
    header_.wait(call_);
    group_.board().match(group_.rank(), from_, call_, packet_->header.signature);
    // Pieces of messages of different sizes may be equally long.
    const Header& header = packet_->header;
    if (header.bytes != into_.bytes() || header.whole_bytes != whole_bytes_) throw_size();
    const auto place = static_cast<int>(packet_->header.place);
    if (place == Staging::window) {
      group_.members().staging(group_.rank())->windows().see(packet_->header.number);
      require(in_place && packet_->header.offset == group_.members().heaps()->offset(into_.data),
              "the memory of a receive differs from its window");
    } else if (place != Staging::none) {
      Staging& staging = *group_.members().staging(from_);
      staging.see(place);
      std::byte* const data = Staging::is_exposed(place)
                                  ? group_.members().heaps()->at(group_.board().world_rank(from_),
                                                                 packet_->header.offset)
                                  : staging.data(place);
      use(into_, {data, into_.count, into_.dtype, into_.device});
      staging.give_back(place);
    } else if (into_.bytes() <= Packet::inline_bytes) {
      use(into_, {packet_->data.data(), into_.count, into_.dtype, into_.device});
    } else {
      receive_segments(use, in_place);
    }
    finished_ = true;
    group_.packets().give_back(std::move(packet_));
  }

  // Two segments are in flight while a third is used. In place, they arrive at their destination.
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
    context.expected = fmt::format("{} bytes", whole_bytes_);
    context.got = fmt::format("{} bytes", packet_->header.whole_bytes);
    throw Error(ErrorKind::mismatch,
                fmt::format("a message from rank {} has the wrong size", context.peer), context);
  }

  MpiGroup& group_;
  Call call_;
  Slice into_;
  int from_;
  std::optional<ReduceOp> op_;
  Count whole_bytes_;
  std::unique_ptr<Packet> packet_;
  PostedReceive header_;
  bool finished_ = false;
};

}  // namespace lockstep
