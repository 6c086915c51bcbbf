#include "collectives/transport/board.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

namespace lockstep {
namespace {

const std::string left = "has ended its program";

}  // namespace

bool AbortNotice::claim(int failed_rank) {
  std::int32_t holder = 0;
  return claimed.compare_exchange_strong(holder, failed_rank + 1) || holder == failed_rank + 1;
}

bool AbortNotice::raise(int failed_rank, const std::exception& cause) {
  if (!claim(failed_rank) || raised()) return false;
  const auto* error = dynamic_cast<const Error*>(&cause);
  kind = error ? error->kind() : ErrorKind::lost_rank;
  const bool names_one =
      error && (error->kind() == ErrorKind::mismatch || error->context().failed_rank >= 0);
  culprit = names_one ? error->context().failed_rank : failed_rank;
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
  const std::int64_t place = signature.sequence % BoardSlot::remembered;
  BoardSlot::Entry& entry = slot.entries[static_cast<std::size_t>(place)];
  const auto words = std::bit_cast<std::array<std::uint64_t, BoardSlot::Entry::words>>(signature);
  const std::uint32_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  // A reader that sees any of the new words also sees the odd version.
  for (int i = 0; i < BoardSlot::Entry::words; ++i)
    entry.signature[i].store(words[i], std::memory_order_release);
  entry.version.store(version + 2, std::memory_order_release);
  slot.newest.store(place, std::memory_order_release);
  slot.where.store(RankState::Where::inside, std::memory_order_release);
}

bool Board::all_ended() const {
  for (int rank = 0; rank < size(); ++rank)
    if (!has_ended(rank)) return false;
  return true;
}

Signature Board::read(const BoardSlot::Entry& entry) const {
  std::array<std::uint64_t, BoardSlot::Entry::words> words;
  std::uint32_t before, after;
  do {
    before = entry.version.load(std::memory_order_acquire);
    for (int i = 0; i < BoardSlot::Entry::words; ++i)
      words[i] = entry.signature[i].load(std::memory_order_acquire);
    after = entry.version.load(std::memory_order_relaxed);
  } while (before != after || (before & 1) != 0);
  // An entry that was never written is all zeros, which would read as operation number 0.
  return before == 0 ? Signature{} : std::bit_cast<Signature>(words);
}

Signature Board::announced(int rank, std::int64_t sequence) const {
  if (sequence < 0) return {};
  const auto place = static_cast<std::size_t>(sequence % BoardSlot::remembered);
  const Signature found = read(slots_[rank].entries[place]);
  return found.sequence == sequence ? found : Signature{};
}

Signature Board::last(int rank) const {
  const std::int64_t newest = slots_[rank].newest.load(std::memory_order_acquire);
  return read(slots_[rank].entries[static_cast<std::size_t>(newest)]);
}

ErrorContext Board::context(int rank, int peer, const Call& call) const {
  const Signature& s = call.signature;
  ErrorContext context;
  context.rank = world_rank(rank);
  context.size = static_cast<int>(std::set(world_ranks_.begin(), world_ranks_.end()).size());
  context.peer = peer >= 0 ? world_rank(peer) : -1;
  context.sequence = s.sequence;
  context.operation = std::string(name_of(s.operation));
  if (s.algorithm[0] != 0) context.operation += fmt::format("/{}", s.algorithm.data());
  context.operation += fmt::format(" over {}", transport_);
  return context;
}

void Board::examine(int rank, std::span<const int> peers, const Call& call, double waited_s) const {
  check_notice(rank, peers.front(), call);
  if (notice_->rank() == world_rank(rank))
    throw Error(ErrorKind::lost_rank, "this rank has given up", context(rank, peers.front(), call));
  // A rank that calls another operation under the same number will never send what we wait for.
  if (call.signature.sequence >= 0) {
    for (int other = 0; other < size(); ++other) {
      const Signature theirs = announced(other, call.signature.sequence);
      if (theirs.sequence >= 0 && theirs != call.signature)
        throw_mismatch(rank, other, call, theirs);
    }
  }
  for (const int peer : peers) {
    const std::string fault = has_ended(peer) ? left : health_ ? health_(peer) : "";
    if (fault.empty()) continue;
    // Messages that it sent before it left may still be in flight.
    constexpr double grace_s = 0.5;
    if (waited_s < grace_s) return;
    throw_lost(rank, peer, call, fault);
  }
  if (waited_s > timeout_s_)
    throw_timeout(rank, peers, call, "timed out", fmt::format("none in {:.1f} s", waited_s),
                  "; raise --timeout if it is only slow");
}

void Board::check_departed(int rank, std::span<const int> peers, const Call& call) const {
  for (const int peer : peers)
    if (has_ended(peer)) throw_lost(rank, peer, call, left);
}

void Board::throw_lost(int rank, int peer, const Call& call, std::string_view fault) const {
  ErrorContext c = context(rank, peer, call);
  c.failed_rank = c.peer;
  throw Error(
      ErrorKind::lost_rank,
      fmt::format("rank {} {} while this rank waits for it: {}", c.peer, fault, failure_report()),
      c);
}

void Board::throw_mismatch(int rank, int peer, const Call& call, const Signature& got) const {
  // If the message belongs to an earlier operation, the ranks differed in that one.
  Call differs = call;
  if (const Signature ours = announced(rank, got.sequence); ours.sequence >= 0 && ours != got)
    differs.signature = ours;
  ErrorContext c = context(rank, peer, differs);
  c.failed_rank = culprit_of_mismatch(rank, peer, differs, got);
  c.expected = differs.signature.text();
  c.got = got.text();
  c.hint =
      "every rank must make the same calls in the same order with the same count, type, reduction "
      "and root";
  throw Error(ErrorKind::mismatch,
              c.failed_rank == c.rank
                  ? fmt::format("this rank calls another operation than rank {}", c.peer)
                  : fmt::format("rank {} calls another operation", c.peer),
              c);
}

// Of two ranks in different operations, the one that fewer ranks agree with; -1 in case of a tie.
int Board::culprit_of_mismatch(int rank, int peer, const Call& call, const Signature& got) const {
  if (call.signature.sequence < 0) return -1;  // the board does not show single messages
  constexpr auto patience = std::chrono::milliseconds(200);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto votes = [&](const Signature& signature) {
    int count = 0;
    for (int other = 0; other < size(); ++other)
      count += announced(other, signature.sequence) == signature;
    return count;
  };
  int with_us = 0, with_peer = 0;
  do {
    // Another rank may have reported the failure first. Then that is the world's error.
    check_notice(rank, peer, call);
    with_us = votes(call.signature), with_peer = votes(got);
    if (std::abs(with_us - with_peer) > size() - with_us - with_peer) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::isfinite(timeout_s_) && std::chrono::steady_clock::now() < deadline);
  if (with_us == with_peer) return -1;
  return world_rank(with_us > with_peer ? peer : rank);
}

void Board::throw_notice(int rank, int peer, const Call& call) const {
  ErrorContext c = context(rank, peer, call);
  const int reporter = notice_->rank();
  c.failed_rank = notice_->culprit;
  const std::string_view cause = notice_->text.data();
  throw Error(notice_->kind,
              c.failed_rank == reporter
                  ? fmt::format("stopped because rank {} failed: {}", reporter, cause)
                  : fmt::format("stopped by rank {}, which reports: {}", reporter, cause),
              c);
}

// Walks from rank to the rank it waits for, up to one that does not wait and blocks the others.
int Board::root_of_wait(int rank) const {
  int culprit = rank;
  for (int hops = 0; hops < size(); ++hops) {
    const int next = slots_[culprit].waiting_for.load() - 1;
    if (next < 0) break;
    culprit = next;
  }
  return culprit;
}

std::string Board::failure_report() const {
  std::vector<RankState> states;
  for (int rank = 0; rank < size(); ++rank) {
    const int peer = slots_[rank].waiting_for.load() - 1;
    const bool for_another = peer >= 0 && world_rank(peer) != world_rank(rank);
    states.push_back({.rank = world_rank(rank),
                      .last = last(rank),
                      .where = slots_[rank].where.load(std::memory_order_acquire),
                      .waits_for = for_another ? world_rank(peer) : -1});
  }
  return lockstep::failure_report(states);
}

void Board::throw_size(int rank, int peer, const Call& call, Slice into, Slice got) const {
  ErrorContext c = context(rank, peer, call);
  c.expected = fmt::format("{} {}", into.count, name_of(into.dtype));
  c.got = fmt::format("{} {}", got.count, name_of(got.dtype));
  throw Error(ErrorKind::mismatch, fmt::format("a message from rank {} has another size", c.peer),
              c);
}

void Board::give_up(int rank, std::span<const int> peers, const Call& call) const {
  constexpr double long_enough_s = 1;
  examine(rank, peers, call, long_enough_s);
  throw_timeout(rank, peers, call, "all ranks wait", "none, and none is on its way", "");
}

void Board::throw_timeout(int rank, std::span<const int> peers, const Call& call,
                          std::string_view what, std::string_view got,
                          std::string_view advice) const {
  ErrorContext c = context(rank, peers.front(), call);
  c.failed_rank = world_rank(root_of_wait(rank));
  std::vector<int> awaited;
  for (const int peer : peers) awaited.push_back(world_rank(peer));
  c.expected = fmt::format("a message to or from {}", ranks_text(awaited));
  c.got = got;
  c.hint = fmt::format("rank {} keeps the others waiting{}", c.failed_rank, advice);
  throw Error(ErrorKind::timeout, fmt::format("{}: {}", what, failure_report()), c);
}

}  // namespace lockstep
