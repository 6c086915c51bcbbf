// Why a wait fails, and which rank is to blame: the errors of the board.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "collectives/transport/failure/board.h"

namespace lockstep {

ErrorContext Board::context(int rank, int peer, const Call& call) const {
  const Signature& s = call.signature;
  ErrorContext context;
  context.rank = world_rank(rank);
  context.size = static_cast<int>(world_.waits.size());
  context.peer = peer >= 0 ? world_rank(peer) : -1;
  context.sequence = s.sequence;
  context.operation = std::string(name_of(s.operation));
  if (s.algorithm[0] != 0) context.operation += fmt::format("/{}", s.algorithm.data());
  context.operation += fmt::format(" over {}", transport_);
  context.operation += among_;
  return context;
}

void Board::check_ends(int rank, bool sees_all, double waited_s) const {
  int missing = 0;
  while (missing < size() && (has_ended(missing) || !sees_all)) ++missing;
  const int peer = missing < size() ? missing : -1;
  const Call call{.signature = last(rank), .label = {}};
  check_notice(rank, peer, call);
  if (const std::string fault = peer >= 0 && health_ ? health_(peer) : ""; !fault.empty())
    throw_lost(rank, peer, call, fault);
  // A running rank may still have much to do on its own, such as writing the weights.
  constexpr double patience = 10;
  const bool stopped = peer >= 0 && stopped_ && stopped_(peer);
  if (waited_s <= (stopped ? 1 : patience) * timeout_s_) return;
  ErrorContext c = context(rank, peer, call);
  c.failed_rank = peer >= 0 ? culprit_of_wait(rank, peer) : -1;
  if (c.failed_rank >= 0) c.hint = fmt::format("rank {} keeps the others waiting", c.failed_rank);
  throw Error(ErrorKind::timeout,
              fmt::format("{:.1f} s after this rank finished, other ranks are still running: {}",
                          waited_s, failure_report()),
              c);
}

void Board::check_last_calls(int rank) const {
  const Call ours{.signature = last(rank), .label = {}};
  for (int other = 0; other < size(); ++other) {
    const Signature theirs = last(other);
    if (theirs.sequence == ours.signature.sequence) continue;
    int with_us = 0, with_other = 0;
    for (int third = 0; third < size(); ++third) {
      with_us += last(third).sequence == ours.signature.sequence;
      with_other += last(third).sequence == theirs.sequence;
    }
    ErrorContext c = context(rank, other, ours);
    if (with_us != with_other) c.failed_rank = with_us > with_other ? c.peer : c.rank;
    c.hint = "every rank must make the same calls";
    throw Error(
        ErrorKind::mismatch,
        fmt::format("ranks finished after different calls: rank {} after {}, rank {} after {}",
                    c.rank, ours.signature.text(), c.peer, theirs.text()),
        c);
  }
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
  // If the message belongs to an earlier operation, that is where the ranks differed.
  Call differs = call;
  if (const Signature ours = announced(rank, got.sequence); ours.sequence >= 0 && ours != got)
    differs.signature = ours;
  ErrorContext c = context(rank, peer, differs);
  c.failed_rank = culprit_of_mismatch(rank, peer, differs, got);
  c.expected = differs.signature.text();
  c.got = got.text();
  const bool messages = got.is_numbered_message();
  c.hint = messages ? "every message must be sent and received, in the same order"
                    : "every rank must make the same calls in the same order with the same count, "
                      "type, reduction and root";
  std::string what;
  if (c.failed_rank < 0)
    what = fmt::format("ranks {} and {} disagree: rank {} is at {}, rank {} at {}", c.rank, c.peer,
                       c.rank, c.expected, c.peer, c.got);
  else if (messages)
    what = fmt::format("rank {} has skipped a message between ranks {} and {}", c.failed_rank,
                       c.rank, c.peer);
  else
    what = c.failed_rank == c.rank
               ? fmt::format("this rank calls another operation than rank {}", c.peer)
               : fmt::format("rank {} calls another operation", c.peer);
  throw Error(ErrorKind::mismatch, what, c);
}

// Returns the culprit of two ranks: in different operations, the one with which fewer ranks agree,
// -1 in case of a tie; if they expect different messages, the one that is ahead.
int Board::culprit_of_mismatch(int rank, int peer, const Call& call, const Signature& got) const {
  if (got.is_later_message_than(call.signature)) return world_rank(peer);
  if (call.signature.is_later_message_than(got)) return world_rank(rank);
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
  const int reporter = notice().rank();
  c.failed_rank = notice().culprit;
  const std::string_view cause = notice().text.data();
  // A group that ends cannot throw the failure of its rank; the rank's next call does.
  if (notice().kind == ErrorKind::interrupted || reporter == c.rank)
    throw Error(notice().kind, cause, c);
  throw Error(notice().kind,
              c.failed_rank == reporter
                  ? fmt::format("stopped because rank {} failed: {}", reporter, cause)
                  : fmt::format("stopped by rank {}, which reports: {}", reporter, cause),
              c);
}

// Returns why `rank` waits for `peer`. Among `peer` and the ranks that it waits for, directly or
// through others:
// the one that has been unresponsive longest, if that is long; otherwise one that does not wait. -1
// if all wait for each other in a cycle.
int Board::culprit_of_wait(int rank, int peer) const {
  constexpr double longest_pause_s = 0.5;
  const double unresponsive_s = std::min(longest_pause_s, timeout_s_ / 2);
  const auto now = std::chrono::steady_clock::now();
  double longest_s = unresponsive_s;
  int unresponsive = -1, does_not_wait = -1;
  std::vector<int> reached{world_rank(peer)};
  std::vector<bool> seen(world_.waits.size());
  seen[static_cast<std::size_t>(reached.front())] = true;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const int here = reached[i];
    bool waits = false;
    for (const RankWaits::Entry& entry : world_.waits[static_cast<std::size_t>(here)].entries) {
      const int next = entry.waiting_for.load() - 1;
      if (next < 0) continue;
      waits = waits || next != here;  // a rank that waits only for itself never continues
      const double silent_s = entry.silent_s(now);
      if (here != world_rank(rank) && std::isfinite(timeout_s_) && silent_s > longest_s)
        longest_s = silent_s, unresponsive = here;
      if (!seen[static_cast<std::size_t>(next)]) reached.push_back(next);
      seen[static_cast<std::size_t>(next)] = true;
    }
    if (!waits && does_not_wait < 0) does_not_wait = here;
  }
  return unresponsive >= 0 ? unresponsive : does_not_wait;
}

// The call in which `rank` waits in this group.
Signature Board::awaited(int rank) const {
  const std::int32_t entry = slots_[rank].waits_entry.load() - 1;
  if (entry < 0) return {};
  const RankWaits& waits = world_.waits[static_cast<std::size_t>(world_rank(rank))];
  return waits.entries[static_cast<std::size_t>(entry)].call.read();
}

// "rank 0 waits for rank 1 in all_reduce/ring #3 of 8 f32, sum; rank 1 ...", from `rank` on.
std::string Board::circle_of_waits(int rank) const {
  std::vector<std::string> waits;
  std::set<int> listed;
  constexpr std::size_t most_listed = 16;
  for (int here = world_rank(rank); here >= 0 && listed.insert(here).second;) {
    const auto& entries = world_.waits[static_cast<std::size_t>(here)].entries;
    const auto entry = std::ranges::find_if(
        entries, [](const RankWaits::Entry& each) { return each.waiting_for.load() > 0; });
    if (entry == entries.end() || waits.size() == most_listed) break;
    const int next = entry->waiting_for.load() - 1;
    waits.push_back(
        fmt::format("rank {} waits for rank {} in {}", here, next, entry->call.read().text()));
    here = next;
  }
  return fmt::format("{}", fmt::join(waits, "; "));
}

std::string Board::failure_report() const {
  std::vector<RankState> states;
  for (int rank = 0; rank < size(); ++rank) {
    const bool is_seen = !network_state_ || slots_[rank].process.load() != 0;
    if (!is_seen) continue;
    const int peer = slots_[rank].waiting_for.load() - 1;
    const bool for_another = peer >= 0 && world_rank(peer) != world_rank(rank);
    states.push_back({.rank = world_rank(rank),
                      .last = last(rank),
                      .where = slots_[rank].where.load(std::memory_order_acquire),
                      .waits_for = for_another ? world_rank(peer) : -1,
                      .awaited = awaited(rank)});
  }
  return lockstep::failure_report(states);
}

void Board::throw_size(int rank, int peer, const Call& call, Slice into, Slice got) const {
  ErrorContext c = context(rank, peer, call);
  c.expected = fmt::format("{} {}", into.count, name_of(into.dtype));
  c.got = fmt::format("{} {}", got.count, name_of(got.dtype));
  throw Error(ErrorKind::mismatch, fmt::format("a message from rank {} has the wrong size", c.peer),
              c);
}

void Board::give_up(int rank, std::span<const int> peers, const Call& call) const {
  constexpr double long_enough_s = 1;
  std::optional<double> faulty_since_s = 0;
  examine(rank, peers, call, long_enough_s, faulty_since_s);
  throw_timeout(rank, peers, call, "all ranks wait", "none, and none is on its way", "");
}

void Board::throw_timeout(int rank, std::span<const int> peers, const Call& call,
                          std::string_view what, std::string_view got,
                          std::string_view advice) const {
  ErrorContext c = context(rank, peers.front(), call);
  if (!network_state_) c.failed_rank = culprit_of_wait(rank, peers.front());
  std::vector<int> awaited;
  for (const int peer : peers) awaited.push_back(world_rank(peer));
  c.expected = fmt::format("a message to or from {}", ranks_text(awaited));
  c.got = got;
  if (network_state_)
    c.hint = fmt::format("this rank cannot see the other hosts: {} is late or stopped, or {}{}",
                         ranks_text(awaited), network_state_(), advice);
  else
    c.hint = c.failed_rank < 0
                 ? fmt::format(
                       "these ranks wait for each other, so one of them has left out a "
                       "message or call: {}",
                       circle_of_waits(rank))
                 : fmt::format("rank {} keeps the others waiting{}", c.failed_rank, advice);
  throw Error(ErrorKind::timeout, fmt::format("{}: {}", what, failure_report()), c);
}

}  // namespace lockstep
