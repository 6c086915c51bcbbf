// The entries of algorithm tables: name, code, requirements, closed forms.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/links.h"
#include "collectives/communicator.h"
#include "collectives/count_matrix.h"

namespace lockstep {

// What one rank sends and receives in one run. Exact, not an estimate.
struct Traffic {
  Count sent_messages = 0, sent_elements = 0;
  Count received_messages = 0, received_elements = 0;

  Traffic& operator+=(const Traffic& other) {
    sent_messages += other.sent_messages;
    sent_elements += other.sent_elements;
    received_messages += other.received_messages;
    received_elements += other.received_elements;
    return *this;
  }
  friend Traffic operator+(Traffic a, const Traffic& b) { return a += b; }
  friend Traffic operator*(Count number, const Traffic& one) {
    return {number * one.sent_messages, number * one.sent_elements, number * one.received_messages,
            number * one.received_elements};
  }
  bool operator==(const Traffic&) const = default;
};

// The input of a closed form.
struct Problem {
  int ranks = 1;
  Count count = 0;  // elements of the whole buffer
  Count element_bytes = 4;
  int root = 0;
  int ranks_per_node = 1;  // consecutive ranks; 0: nodes differ
  // all_to_all_v only; `count` is then the mean number of elements that a rank sends. Empty: equal
  // counts.
  CountMatrix counts = {};

  double bytes() const { return static_cast<double>(count * element_bytes); }
  // Bytes of the largest of `parts` chunks.
  double chunk_bytes(int parts) const {
    return static_cast<double>((count + parts - 1) / parts * element_bytes);
  }
};

// Conditions under which a closed form of the time equals the simulated time.
inline bool equal_chunks(const Problem& x) { return x.count % x.ranks == 0; }
inline bool power_of_two(const Problem& x) {
  return std::has_single_bit(static_cast<unsigned>(x.ranks));
}
inline bool equal_chunks_of_power_of_two(const Problem& x) {
  return equal_chunks(x) && power_of_two(x);
}
// For nodes with a power of two ranks each.
inline bool power_of_two_of_nodes(const Problem& x) {
  return power_of_two(x) && std::has_single_bit(static_cast<unsigned>(x.ranks_per_node));
}
inline bool equal_chunks_of_power_of_two_of_nodes(const Problem& x) {
  return equal_chunks(x) && power_of_two_of_nodes(x);
}
// For nodes with the same number of ranks.
inline bool equal_chunks_of_nodes(const Problem& x) {
  return equal_chunks(x) && x.ranks % x.ranks_per_node == 0;
}

enum class Need {
  nothing,
  power_of_two_ranks,
  full_nodes,     // the same number of ranks on every node
  shared_memory,  // ranks that read and write each other's memory
  vendor,         // a transport with its own collectives
};
// The algorithm measured as fastest for `data`; "" if nothing was measured.
std::string_view tuned_name(Operation operation, const Communicator& comm, Slice data);
// "" or the requirement that `comm` does not meet: "a power of two of ranks, there are 6".
std::string unmet(Need need, Communicator& comm);

template <typename... Arguments>
struct Algorithm {
  std::string_view name;
  void (*run)(Communicator&, Slice, Arguments...);
  // (out, in, ...). Set if the algorithm works out of place without a copy.
  void (*run_out_of_place)(Communicator&, Slice, Slice, Arguments...) = nullptr;
  // Null for the vendor's algorithm, whose messages are invisible here.
  Traffic (*traffic)(const Problem&, int rank) = nullptr;
  double (*seconds)(const Problem&, const LinkModel&) = nullptr;
  std::string_view formula = {};  // the time; n bytes, p ranks, latency a, b seconds per byte
  // Where `seconds` is exact. Elsewhere it is an upper bound. Null: exact everywhere.
  bool (*exact)(const Problem&) = nullptr;
  // Where `seconds` is exact if links inside nodes are faster than those between. Elsewhere it is
  // then an estimate. Null: the closed form ignores nodes.
  bool (*exact_on_nodes)(const Problem&) = nullptr;
  Need need = Need::nothing;
  // Elements of scratch that a rank allocates while it runs (Communicator::scratch). Null: none.
  Count (*scratch)(const Problem&, int rank) = nullptr;
  // Elements that a rank receives through windows (Communicator::open_window). Null: none.
  Count (*windowed)(const Problem&, int rank) = nullptr;
  // All ranks behave identically if chunks are equal and both the ranks and a node's ranks are a
  // power of two; on unequal links, all nodes do (transport/launch_symmetric.h). False where
  // messages of several ranks arrive at once: nodes then take them in different orders.
  bool ranks_are_equal = false;
  // Only a baseline for the others: the closed form omits one rank's cost of handling p messages.
  bool is_baseline = false;
};

// A time by a closed form.
struct Estimate {
  double seconds = 0;
  bool is_exact = false, is_bound = false;  // neither: an estimate
};

// Returns the closed form's time on these links, of which the ranks may use only one kind. A form
// that ignores nodes gets the slower kind. That is not quite a bound: a message on a fast link can
// overtake one of an earlier round, which then queues behind it.
template <typename Entry>
Estimate estimate(const Entry& entry, Problem x, LinkModel links) {
  const bool nodes_are_equal = x.ranks_per_node > 0;
  if (!nodes_are_equal) x.ranks_per_node = 1;
  if (x.ranks_per_node >= x.ranks) links.between = links.inside;
  if (x.ranks_per_node == 1 && nodes_are_equal) links.inside = links.between;
  if (links.inside == links.between) {
    // With a count for every pair, ranks fall out of step, and messages overtake those of earlier
    // rounds: the form is not a bound.
    const bool is_exact = !entry.exact || entry.exact(x), is_bound = is_exact || x.counts.empty();
    return {entry.seconds(x, links), is_exact, is_bound};
  }
  if (entry.exact_on_nodes && links.is_ordered() && nodes_are_equal) {
    const bool is_exact = entry.exact_on_nodes(x);
    return {entry.seconds(x, links), is_exact, is_exact};
  }
  const Link slowest = {std::max(links.inside.alpha_s, links.between.alpha_s),
                        std::max(links.inside.beta_s_per_byte, links.between.beta_s_per_byte)};
  links.inside = links.between = slowest;
  return {entry.seconds(x, links)};
}

// Throws Error (bad_input) that lists the known names if `name` is not among them.
template <typename Entry>
const Entry& find_algorithm(const std::vector<Entry>& table, std::string_view operation,
                            std::string_view name) {
  for (const Entry& entry : table)
    if (entry.name == name) return entry;
  std::string known;
  for (const Entry& entry : table)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  throw Error(ErrorKind::bad_input, fmt::format("{} has no algorithm '{}'", operation, name),
              {.hint = name == "lab" ? "name the folder of your code in LOCKSTEP_LAB"
                                     : fmt::format("choose one of {}, or auto", known)});
}

// Time that the closed form omits if ranks map each other's memory. Each byte received is then
// copied or reduced by this rank's processor: again, if it was received into scratch; not at all,
// if the sender wrote it through a window.
template <typename Entry>
double mapped_memory_seconds(const Entry& entry, const Problem& x, const Link& link) {
  const Count again = entry.scratch ? entry.traffic(x, 0).received_elements : 0;
  const Count not_at_all = entry.windowed ? entry.windowed(x, 0) : 0;
  return static_cast<double>((again - not_at_all) * x.element_bytes) * link.beta_s_per_byte;
}

// Returns the algorithm for `data` among those that can run here. First choice: the tuned one.
// Second:
// `direct`, because ranks that share memory need no messages. Otherwise the one with the shortest
// time by its closed form.
template <typename Entry>
const Entry& choose_algorithm(const std::vector<Entry>& table, Operation operation,
                              Communicator& comm, Slice data) {
  const std::string_view tuned = tuned_name(operation, comm, data);
  if (!tuned.empty()) return find_algorithm(table, name_of(operation), tuned);
  for (const Entry& entry : table)
    if (entry.need == Need::shared_memory && unmet(entry.need, comm).empty()) return entry;
  const Problem problem{.ranks = comm.size(),
                        .count = data.count,
                        .element_bytes = element_bytes(data.dtype),
                        .ranks_per_node = comm.ranks_per_node()};
  const LinkModel links = comm.transport().links();
  const bool maps_memory =
      comm.transport().capabilities().windows && problem.ranks_per_node == problem.ranks;
  const Entry* best = nullptr;
  double best_s = 0;
  for (const Entry& entry : table) {
    if (entry.is_baseline || entry.need == Need::vendor || !unmet(entry.need, comm).empty())
      continue;
    double seconds = estimate(entry, problem, links).seconds;
    if (maps_memory) seconds += mapped_memory_seconds(entry, problem, links.inside);
    if (!best || seconds < best_s) best = &entry, best_s = seconds;
  }
  return *best;
}

// The entry called `name`; for "auto" the result of choose_algorithm(). Throws Error (bad_input) if
// there is none, or if `comm` does not meet its requirements.
template <typename Entry>
const Entry& usable_algorithm(const std::vector<Entry>& table, Operation operation,
                              std::string_view name, Communicator& comm, Slice data) {
  const Entry& entry = name == "auto" ? choose_algorithm(table, operation, comm, data)
                                      : find_algorithm(table, name_of(operation), name);
  const std::string reason = unmet(entry.need, comm);
  if (!reason.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("{}/{} needs {}", name_of(operation), entry.name, reason),
                {.hint = "choose another --algorithm"});
  return entry;
}

// Exponents of 2 around p >= 1: 2^floor_log2(p) <= p <= 2^ceil_log2(p).
inline int floor_log2(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }
inline int ceil_log2(int p) { return std::bit_width(static_cast<unsigned>(p - 1)); }

}  // namespace lockstep
