#include "collectives/transport/failure/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace lockstep {
namespace {

const std::string left = "has ended its program";

// Claims the notice for the user's interruption.
constexpr int no_rank = std::numeric_limits<std::int32_t>::max() - 1;

}  // namespace

bool AbortNotice::claim(int failed_rank) {
  std::int32_t holder = 0;
  return claimed.compare_exchange_strong(holder, failed_rank + 1) || holder == failed_rank + 1;
}

bool AbortNotice::raise(int failed_rank, const std::exception& cause) {
  if (!claim(failed_rank) || raised()) return false;
  const auto* error = dynamic_cast<const Error*>(&cause);
  // A mismatch or a deadlock may leave open which rank is wrong.
  const bool knows =
      error && (error->kind() == ErrorKind::mismatch || error->kind() == ErrorKind::timeout ||
                error->context().failed_rank >= 0);
  publish(error ? error->kind() : ErrorKind::lost_rank,
          knows ? error->context().failed_rank : failed_rank, cause.what());
  return true;
}

void AbortNotice::publish(ErrorKind of_kind, int by, std::string_view what) {
  kind = of_kind;
  culprit = by;
  const std::size_t length = std::min(what.size(), text.size() - 1);
  std::memcpy(text.data(), what.data(), length);
  text[length] = 0;
  published.store(1, std::memory_order_release);
}

void Announced::write(const Signature& announced) {
  const auto contents = std::bit_cast<std::array<std::uint64_t, words>>(announced);
  const std::uint32_t before = version.load(std::memory_order_relaxed);
  version.store(before + 1, std::memory_order_relaxed);
  // A reader that sees any of the new words also sees the odd version.
  for (int i = 0; i < words; ++i) signature[i].store(contents[i], std::memory_order_release);
  version.store(before + 2, std::memory_order_release);
}

Signature Announced::read() const {
  std::array<std::uint64_t, words> contents;
  std::uint32_t before, after;
  do {
    before = version.load(std::memory_order_acquire);
    for (int i = 0; i < words; ++i) contents[i] = signature[i].load(std::memory_order_acquire);
    after = version.load(std::memory_order_relaxed);
  } while (before != after || (before & 1) != 0);
  // What was never written is all zeros, which would read as operation number 0.
  return before == 0 ? Signature{} : std::bit_cast<Signature>(contents);
}

Board::Waiting::Waiting(const Board& board, int rank, int peer, const Call& call)
    : slot_(board.slots_[rank]) {
  slot_.waiting_for.store(peer + 1, std::memory_order_release);
  const std::int32_t other = board.world_rank(peer) + 1;
  // The process may be stopped before its first check. Without a deadline the heartbeat is not
  // used.
  using Clock = std::chrono::steady_clock;
  const auto now = std::isfinite(board.timeout_s_) ? Clock::now() : Clock::time_point{};
  auto& entries = board.world_.waits[static_cast<std::size_t>(board.world_rank(rank))].entries;
  if (const std::int32_t kept = slot_.waits_entry.load(); kept > 0) {
    entry_ = &entries[static_cast<std::size_t>(kept - 1)];  // left by a wait that failed
    entry_->beat(now);
    entry_->call.write(call.signature);
    entry_->waiting_for.store(other);
    return;
  }
  for (std::size_t i = 0; i < entries.size() && !entry_; ++i) {
    std::int32_t free = 0;
    if (entries[i].waiting_for.load() != 0) continue;
    entries[i].beat(now);
    if (!entries[i].waiting_for.compare_exchange_strong(free, other)) continue;
    entry_ = &entries[i];
    entry_->call.write(call.signature);
    slot_.waits_entry.store(static_cast<std::int32_t>(i) + 1, std::memory_order_release);
  }
}

Board::Waiting::~Waiting() {
  if (std::uncaught_exceptions() > 0) return;
  slot_.waiting_for.store(0, std::memory_order_release);
  if (!entry_) return;
  slot_.waits_entry.store(0, std::memory_order_release);
  entry_->waiting_for.store(0, std::memory_order_release);
}

void Board::Waiting::beat(std::chrono::steady_clock::time_point now) const {
  if (entry_) entry_->beat(now);
}

Board::Board(BoardSlot* slots, WorldBoard world, std::vector<int> world_ranks, double timeout_s,
             std::string transport)
    : slots_(slots),
      world_(world),
      world_ranks_(std::move(world_ranks)),
      timeout_s_(timeout_s),
      transport_(std::move(transport)) {
  std::vector<int> members = world_ranks_;
  std::ranges::sort(members);
  const auto [twice, end] = std::ranges::unique(members);
  members.erase(twice, end);
  if (members.size() < world_.waits.size()) among_ = fmt::format(" among {}", ranks_text(members));
}

void Board::enter(int rank, const Signature& signature) {
  BoardSlot& slot = slots_[rank];
  const std::int64_t place = signature.sequence % BoardSlot::remembered;
  slot.entries[static_cast<std::size_t>(place)].write(signature);
  slot.newest.store(place, std::memory_order_release);
  slot.where.store(RankState::Where::inside, std::memory_order_release);
}

bool Board::all_ended() const {
  for (int rank = 0; rank < size(); ++rank)
    if (!has_ended(rank)) return false;
  return true;
}

Signature Board::announced(int rank, std::int64_t sequence) const {
  if (sequence < 0) return {};
  const auto place = static_cast<std::size_t>(sequence % BoardSlot::remembered);
  const Signature found = slots_[rank].entries[place].read();
  return found.sequence == sequence ? found : Signature{};
}

Signature Board::last(int rank) const {
  const std::int64_t newest = slots_[rank].newest.load(std::memory_order_acquire);
  return slots_[rank].entries[static_cast<std::size_t>(newest)].read();
}

void Board::examine(int rank, std::span<const int> peers, const Call& call, double waited_s,
                    std::optional<double>& faulty_since_s) const {
  check_notice(rank, peers.front(), call);
  if (notice().rank() == world_rank(rank))
    throw Error(ErrorKind::lost_rank, "this rank has given up", context(rank, peers.front(), call));
  // A rank that calls a different operation under the same number will never send the awaited
  // message.
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
    // Messages that it sent or took before it left may still be in flight, however long this rank
    // has waited for them.
    constexpr double grace_s = 0.5;
    if (!faulty_since_s) faulty_since_s = waited_s;
    if (waited_s - *faulty_since_s < grace_s) return;
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

void Board::interrupt(std::string_view signal) const {
  if (!notice().claim(no_rank)) return;
  const std::string report = failure_report();
  notice().publish(ErrorKind::interrupted, -1,
                   report.empty() ? fmt::format("{} before the first operation", signal)
                                  : fmt::format("{} while {}", signal, report));
}

}  // namespace lockstep
