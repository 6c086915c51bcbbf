#include "collectives/transport/board.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace lockstep {

bool AbortNotice::claim(int failed_rank) {
  std::int32_t holder = 0;
  return claimed.compare_exchange_strong(holder, failed_rank + 1) || holder == failed_rank + 1;
}

bool AbortNotice::raise(int failed_rank, const std::exception& cause) {
  if (!claim(failed_rank) || raised()) return false;
  const auto* error = dynamic_cast<const Error*>(&cause);
  kind = error ? error->kind() : ErrorKind::lost_rank;
  const std::string_view what = cause.what();
  const std::size_t length = std::min(what.size(), text.size() - 1);
  std::memcpy(text.data(), what.data(), length);
  text[length] = 0;
  published.store(1, std::memory_order_release);
  return true;
}

Board::Board(BoardSlot* slots, AbortNotice* notice, std::vector<int> world_ranks, double timeout_s,
             std::string transport)
    : slots_(slots),
      notice_(notice),
      world_ranks_(std::move(world_ranks)),
      timeout_s_(timeout_s),
      transport_(std::move(transport)) {}

void Board::enter(int rank, const Signature& signature) {
  BoardSlot& slot = slots_[rank];
  const auto words = std::bit_cast<std::array<std::uint64_t, BoardSlot::words>>(signature);
  const std::uint32_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  // Readers that see any of the new words also see the odd version.
  for (int i = 0; i < BoardSlot::words; ++i)
    slot.signature[i].store(words[i], std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
}

bool Board::all_ended() const {
  for (int rank = 0; rank < size(); ++rank)
    if (slots_[rank].left.load(std::memory_order_acquire) == 0) return false;
  return true;
}

void Board::leave(int rank) { enter(rank, Signature{}); }

Signature Board::read(int rank) const {
  const BoardSlot& slot = slots_[rank];
  std::array<std::uint64_t, BoardSlot::words> words;
  std::uint32_t before, after;
  do {
    before = slot.version.load(std::memory_order_acquire);
    for (int i = 0; i < BoardSlot::words; ++i)
      words[i] = slot.signature[i].load(std::memory_order_acquire);
    after = slot.version.load(std::memory_order_relaxed);
  } while (before != after || (before & 1) != 0);
  // A slot nobody has written yet is all zeros, which would read as operation number 0.
  return before == 0 ? Signature{} : std::bit_cast<Signature>(words);
}

ErrorContext Board::context(int rank, int peer, const Call& call) const {
  const Signature& s = call.signature;
  ErrorContext context;
  context.rank = world_rank(rank);
  context.size = size();
  context.peer = peer >= 0 ? world_rank(peer) : -1;
  context.sequence = s.sequence;
  context.operation = std::string(name_of(s.operation));
  if (s.algorithm[0] != 0) context.operation += fmt::format("/{}", s.algorithm.data());
  context.operation += fmt::format(" over {}", transport_);
  return context;
}

void Board::examine(int rank, int peer, const Call& call, double waited_s) const {
  check_notice(rank, peer, call);
  if (notice_->rank() == world_rank(rank))
    throw Error(ErrorKind::lost_rank, "this rank has given up", context(rank, peer, call));
  // A rank at the same operation number in another operation will never send what we wait for.
  if (call.signature.sequence >= 0) {
    for (int other = 0; other < size(); ++other) {
      const Signature theirs = read(other);
      if (theirs.sequence == call.signature.sequence && theirs != call.signature)
        throw_mismatch(rank, other, call, theirs);
    }
  }
  std::string fault;
  if (slots_[peer].left.load(std::memory_order_acquire) != 0)
    fault = "has ended its program";
  else if (health_)
    fault = health_(peer);
  if (!fault.empty()) {
    // What it sent before it went may still be on its way.
    constexpr double grace_s = 0.5;
    if (waited_s < grace_s) return;
    ErrorContext c = context(rank, peer, call);
    c.failed_rank = c.peer;
    throw Error(ErrorKind::lost_rank,
                fmt::format("rank {} {} while this rank waits for it", c.peer, fault), c);
  }
  if (waited_s > timeout_s_)
    throw_timeout(rank, peer, call, "timed out", fmt::format("none in {:.1f} s", waited_s),
                  "; raise --timeout if it is only slow");
}

void Board::throw_mismatch(int rank, int peer, const Call& call, const Signature& got) const {
  ErrorContext c = context(rank, peer, call);
  c.expected = call.signature.text();
  c.got = got.text();
  c.hint =
      "every rank must make the same calls in the same order with the same count, type, reduction "
      "and root";
  throw Error(ErrorKind::mismatch, fmt::format("rank {} is doing something else", c.peer), c);
}

void Board::throw_notice(int rank, int peer, const Call& call) const {
  ErrorContext c = context(rank, peer, call);
  c.failed_rank = notice_->rank();
  throw Error(
      notice_->kind,
      fmt::format("stopped because rank {} failed: {}", c.failed_rank, notice_->text.data()), c);
}

// Follows who waits for whom to the rank that is not waiting: the one that keeps the others.
int Board::root_of_wait(int rank) const {
  int culprit = rank;
  for (int hops = 0; hops < size(); ++hops) {
    const int next = slots_[culprit].waiting_for.load() - 1;
    if (next < 0) break;
    culprit = next;
  }
  return culprit;
}

std::string Board::describe() const {
  constexpr int most = 16;
  std::string text;
  for (int rank = 0; rank < std::min(size(), most); ++rank) {
    const Signature s = read(rank);
    const int peer = slots_[rank].waiting_for.load() - 1;
    text += fmt::format("{}rank {}: {}", rank == 0 ? "" : ", ", world_rank(rank),
                        s.sequence < 0 ? "between operations" : s.text());
    if (peer >= 0) text += fmt::format(" waiting for rank {}", world_rank(peer));
  }
  return text + (size() > most ? ", ..." : "");
}

void Board::throw_size(int rank, int peer, const Call& call, Slice into, Slice got) const {
  ErrorContext c = context(rank, peer, call);
  c.expected = fmt::format("{} {}", into.count, name_of(into.dtype));
  c.got = fmt::format("{} {}", got.count, name_of(got.dtype));
  throw Error(ErrorKind::mismatch, fmt::format("a message from rank {} has another size", c.peer),
              c);
}

void Board::give_up(int rank, int peer, const Call& call) const {
  constexpr double long_enough_s = 1;
  examine(rank, peer, call, long_enough_s);
  throw_timeout(rank, peer, call, "all ranks wait", "none, and none is on its way", "");
}

void Board::throw_timeout(int rank, int peer, const Call& call, std::string_view what,
                          std::string_view got, std::string_view advice) const {
  ErrorContext c = context(rank, peer, call);
  c.failed_rank = world_rank(root_of_wait(rank));
  c.expected = fmt::format("a message to or from rank {}", c.peer);
  c.got = got;
  c.hint = fmt::format("rank {} keeps the others waiting{}", c.failed_rank, advice);
  throw Error(ErrorKind::timeout, fmt::format("{}; the board: {}", what, describe()), c);
}

}  // namespace lockstep
