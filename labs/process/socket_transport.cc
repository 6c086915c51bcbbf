#include "labs/process/socket_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "collectives/base/checksum.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

void write_all(const std::byte* data, std::int64_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(lab_socket, data, static_cast<std::size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw Error(ErrorKind::lost_rank, "the grader has left");
    data += written, bytes -= written;
  }
}

class Sent final : public Transfer {
 public:
  void wait() override {}
};

// The grader numbers the messages from each rank to each other rank of a group, so receives may be
// waited for in any order.
class Awaited final : public Transfer {
 public:
  // `wanted`: the frame that asks for it.
  Awaited(int rank, int size, Slice into, const Frame& wanted, std::optional<ReduceOp> op)
      : rank_(rank), size_(size), into_(into), wanted_(wanted), op_(op) {}

  void wait() override {
    write_frame(wanted_, {});
    const Frame arrived = read_frame();
    if (arrived.bytes != into_.bytes())
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} sent a message of {} bytes, where this rank expects {}",
                              wanted_.peer, arrived.bytes, into_.bytes()),
                  {.rank = rank_, .size = size_, .peer = wanted_.peer});
    if (op_)
      reduce(*op_);
    else
      read_content({into_.data, static_cast<std::size_t>(into_.bytes())});
  }

 private:
  // Piece by piece, so that it needs no scratch of the message's size.
  void reduce(ReduceOp op) const {
    alignas(64) std::array<std::byte, 4096> piece{};
    const Count each = static_cast<Count>(piece.size()) / element_bytes(into_.dtype);
    for (Count done = 0; done < into_.count; done += each) {
      const Slice growing = into_.part(done, std::min(each, into_.count - done));
      const Slice from{piece.data(), growing.count, growing.dtype, &host_device()};
      read_content({piece.data(), static_cast<std::size_t>(from.bytes())});
      host_device().reduce(growing, from, op);
    }
  }

  int rank_, size_;
  Slice into_;
  Frame wanted_;
  std::optional<ReduceOp> op_;
};

// A rank that fails reports it itself.
class NoBoard final : public FailureBoard {
 public:
  bool abort(const std::exception&) override { return true; }
  void depart() override {}
  void abandon() override {}
  Stop stopper() override {
    return [](std::string_view) {};
  }
};

class OneNode final : public Network {
 public:
  explicit OneNode(int size) : size_(size) {}
  int ranks_per_node() const override { return size_; }

 private:
  int size_;
};

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class SocketTransport final : public Transport {
 public:
  // `ranks`: those of the world that are the group's members. `group`: its number, the same on all.
  SocketTransport(int rank, std::vector<int> ranks, std::uint64_t group)
      : Transport({.clock = &wall_clock(), .failures = &board_, .network = &network_}),
        rank_(rank),
        ranks_(std::move(ranks)),
        group_(group),
        network_(static_cast<int>(ranks_.size())),
        received_(ranks_.size()) {}

  std::string_view name() const override { return "lab"; }
  int rank() const override { return rank_; }
  int size() const override { return network_.ranks_per_node(); }

  Request isend(const Call& call, Slice data, int to) override {
    Frame frame{.kind = Frame::Kind::send, .peer = in_world(to), .group = group_};
    call.label.copy(frame.label.data(), frame.label.size() - 1);
    write_frame(frame, {data.data, static_cast<std::size_t>(data.bytes())});
    return std::make_unique<Sent>();
  }
  Request irecv(const Call&, Slice data, int from) override {
    return std::make_unique<Awaited>(rank_, size(), data, next(from), std::nullopt);
  }
  Request irecv_reduce(const Call&, Slice growing, int from, ReduceOp op) override {
    return std::make_unique<Awaited>(rank_, size(), growing, next(from), op);
  }
  std::size_t wait_any(const Call&, std::span<const Request>, std::span<const int>) override {
    throw without("wait_any");
  }
  // All members compute the same number: that of the group it is a part of, its ranks, and how many
  // groups of these ranks there were before.
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(in_world(member));
    const auto own = std::ranges::find(ranks, in_world(rank_)) - ranks.begin();
    std::string text = std::to_string(group_) + " " + std::to_string(subgroups_[ranks]++);
    for (const int rank : ranks) text += " " + std::to_string(rank);
    return std::make_unique<SocketTransport>(static_cast<int>(own), ranks, checksum(text));
  }
  TwoEnds two_ends() override { throw without("two_ends"); }

 private:
  int in_world(int member) const { return ranks_[static_cast<std::size_t>(member)]; }
  Frame next(int from) {
    return {.kind = Frame::Kind::want,
            .peer = in_world(from),
            .group = group_,
            .number = received_[static_cast<std::size_t>(from)]++};
  }
  // The error for a capability that no lab needs.
  Error without(const char* what) const {
    return {ErrorKind::bad_input,
            fmt::format("{} does not exist in a lab", what),
            {.rank = rank_, .size = size()}};
  }

  int rank_;
  std::vector<int> ranks_;
  std::uint64_t group_;
  OneNode network_;
  NoBoard board_;
  std::vector<std::int64_t> received_;  // by sender: how many receives were posted
  std::map<std::vector<int>, int> subgroups_;
};

}  // namespace

void write_frame(Frame frame, std::span<const std::byte> content) {
  frame.bytes = std::ssize(content);
  write_all(reinterpret_cast<const std::byte*>(&frame), sizeof frame);
  write_all(content.data(), frame.bytes);
}

Frame read_frame() {
  Frame frame;
  read_content({reinterpret_cast<std::byte*>(&frame), sizeof frame});
  return frame;
}

void read_content(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = read(lab_socket, into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error(ErrorKind::lost_rank, "the grader has left");
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

std::unique_ptr<Transport> socket_transport(int rank, int size) {
  return std::make_unique<SocketTransport>(rank, all_ranks(size), 0);
}

}  // namespace lockstep
