// The ways in which rows travel between the ranks that divide experts. Each is a class in a file of its
// own, next to its closed forms, and a line in the table of dispatcher.cc.
//
// The rows of a rank's tokens lie by the rank that has their expert, and those of its experts by the
// rank that has their token. Within these, rows of one choice lie by expert, then by token. A method that
// only moves those gives results with the same bits as any other. Methods that send a token once for all
// its experts on a rank have that rank add up what these have made of it, in another order than
// one rank would.
//
// P ranks, E experts, K for each of N tokens, C: columns of a row.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/all_to_all_v/all_to_all_v.h"
#include "models/expert_config.h"
#include "models/routing.h"
#include "parallel/plan/environment.h"

namespace lockstep {

// The ranks of an exchange, and what bounds its rows.
struct ExpertGroup {
  ExpertSplit split = {};
  ExpertConfig experts = {};
  int ranks_per_node = 1;  // consecutive ones

  Count own_experts() const { return split.experts(experts.number); }
};

// The rows that leave a rank.
struct SentRows {
  std::vector<Count> counts;         // [P], to each rank
  Count first_own = 0;               // of those to the rank itself
  std::vector<std::int32_t> tokens;  // of each row, by rank
  std::vector<std::int32_t> rows;    // [N, r], those of each token; -1: none
  std::vector<std::int32_t>
      places;  // [N, K], of each choice among the experts of all rows; -1: dropped
};
SentRows sent_choices(const ExpertGroup& group, const Routing& routing);

// One way of some rows. dispatch() reads `of_tokens` and fills `of_experts`, combine() the other way.
struct RowExchange {
  std::string label;  // of its traffic
  Slice of_tokens, of_experts;
  std::array<Slice, 2> scratch;  // for as many rows as the method asks for
  const Routing& routing;
  Count columns;
};

class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;

  // Every rank learns which rows arrive, and which pass through it: fills routing.arriving and
  // routing.passing; or, if rows are of tokens, routing.received from routing.sent. All ranks call this,
  // dispatch() and combine() at the same time, even without a row. `label` is that of the traffic.
  virtual void exchange_counts(const std::string& label, Routing& routing) = 0;
  virtual void dispatch(const RowExchange& rows) = 0;
  virtual void combine(const RowExchange& rows) = 0;
};

// A part of a way, with traffic that is counted apart, in formulas of 8 bytes or of C beta.
struct DispatchLeg {
  std::string_view name;  // added to the label
  Traffic traffic;
  std::string_view sent_formula, received_formula;
};

struct DispatchMethod {
  std::string_view name;
  // Throws Error (bad_input) if it cannot be used on these ranks.
  std::unique_ptr<TokenDispatcher> (*make)(Communicator& comm, const ExpertGroup& group);
  // In numbers of 8 bytes, and in rows from tokens to experts. The way back is the reverse.
  std::vector<DispatchLeg> (*counts)(const ExpertGroup& group);
  std::vector<DispatchLeg> (*rows)(const ExpertGroup& group, const DispatchedRows& rows);
  // Rows of each scratch; none needs neither.
  std::array<Count, 2> (*scratch)(const ExpertGroup& group);
  // Of one way, if all pairs of ranks have rows of so many bytes, without the counts; none where no
  // closed form is exact.
  std::optional<double> (*seconds)(const ExpertGroup& group, Count pair_bytes,
                                   const LinkModel& links);
  std::string_view messages_formula;  // of an exchange
  // A row is for all of its token's experts on a rank, as many as experts_per_row at most, and needs
  // the router's weights there. Otherwise it is for one choice.
  bool sends_tokens = false;
  SentRows (*sent)(const ExpertGroup& group, const Routing& routing) = sent_choices;
  Count (*experts_per_row)(const ExpertGroup& group) = [](const ExpertGroup&) { return Count{1}; };
  // Rows that so many tokens send, and that arrive at this rank and those that split its experts.
  Count (*most_sent)(const ExpertGroup& group, Count tokens) =
      [](const ExpertGroup& group, Count tokens) { return group.experts.most_rows(tokens); };
  Count (*most_received)(const ExpertGroup& group) = [](const ExpertGroup& group) {
    return group.experts.most_rows(group.split);
  };
};
const std::vector<DispatchMethod>& dispatch_methods();
// Throws Error (bad_input) that lists the names.
const DispatchMethod& dispatch_method(std::string_view name);

DispatchMethod all_to_all_dispatch();
DispatchMethod two_level_dispatch();
DispatchMethod padded_dispatch();
DispatchMethod deduplicated_dispatch();
DispatchMethod all_gather_dispatch();

// Sets what leaves, arrives and passes as if all ranks chose like this one, from routing.counts or, if
// rows are of tokens, from what they have chosen.
void choose_alike(const ExpertGroup& group, const DispatchMethod& method, Routing& routing);
// Sets what travels between pairs of ranks, from counts and what has arrived.
void count_rows(Routing& routing, int ranks);
// The rows of one dispatch, after its counts.
DispatchedRows dispatched_rows(const Routing& routing);
// DispatchMethod::counts if each rank tells each other rank one number.
std::vector<DispatchLeg> one_count_each(const ExpertGroup& group);
// counts * columns
std::vector<Count> in_elements(std::vector<Count> counts, Count columns);
// The time of an all-to-all with equal parts: see DispatchMethod::seconds.
std::optional<double> all_to_all_seconds(const ExpertGroup& group, Count pair_bytes,
                                         const LinkModel& links);

}  // namespace lockstep
