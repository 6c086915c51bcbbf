// Two-level exchange of rows: first inside each node, to the rank that has the same place as the
// destination in its own node; then between the ranks with that place in all nodes.
//
//   N nodes of M = P / N ranks; rank (i, a) is the a-th of node i
//   expert counts, in nodes        (M - 1) N E / P numbers, in M - 1 messages
//   expert counts, between nodes   (N - 1) M E / P numbers, in N - 1 messages
//   to the experts, in nodes       sum over b != a and all j of n((i, a), (j, b)) rows
//   to the experts, between nodes  sum over j != i and all x of n((i, x), (j, a)) rows
//   back                           the same ways, reversed: between nodes first
//   time                           M - 1 messages of N pairs' rows inside, and N - 1 of M between
//   scratch                        2 M N' min(K, N E / P) rows, N' tokens of a micro-batch; or less
//                                  with a capacity
//
// where n(r, q) rows go from rank r to the experts of rank q. Messages between nodes are M times as
// large as those of the all-to-all and M times fewer: of a uniform exchange of S bytes, it is faster
// exactly if the latency between nodes is above S / P bytes' time inside. Hwang et al., "Tutel", 2022.
#include <fmt/format.h>

#include "collectives/ring_order.h"
#include "parallel/expert/dispatcher.h"

namespace lockstep {
namespace {

constexpr std::string_view in_nodes = ", in nodes", between_nodes = ", between nodes";

// A row for each node, a column for each place in a node.
Grid nodes_of(const ExpertGroup& group) {
  return {.rows = group.split.ranks / group.ranks_per_node, .columns = group.ranks_per_node};
}

// Elements in blocks: by row, then by column.
struct Blocks {
  int rows, columns;
  std::vector<Count> counts;

  Count& operator()(int row, int column) {
    return counts[static_cast<std::size_t>(row * columns + column)];
  }
  Count operator()(int row, int column) const {
    return counts[static_cast<std::size_t>(row * columns + column)];
  }
  Blocks transposed() const {
    Blocks other{columns, rows, std::vector<Count>(counts.size())};
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) other(column, row) = (*this)(row, column);
    return other;
  }
  std::vector<Count> of_rows() const {
    std::vector<Count> sums(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < counts.size(); ++i)
      sums[i / static_cast<std::size_t>(columns)] += counts[i];
    return sums;
  }
};

// The blocks of `from` lie by row, then by column; those of `into` by column, then by row.
void transpose_blocks(Communicator& comm, Slice into, Slice from, const Blocks& blocks) {
  const Blocks other = blocks.transposed();
  const UnevenChunks source(from, blocks.counts), target(into, other.counts);
  for (int row = 0; row < blocks.rows; ++row)
    for (int column = 0; column < blocks.columns; ++column)
      if (blocks(row, column) > 0)
        comm.copy(target[column * blocks.rows + row], source[row * blocks.columns + column]);
}

// Part i of `from` goes to the i-th of these ranks, whose part for this rank becomes part i of `into`.
void exchange_parts(Communicator& comm, const RingOrder& ranks, const UnevenChunks& into,
                    const UnevenChunks& from) {
  comm.copy(into[ranks.rank], from[ranks.rank]);
  for (int distance = 1; distance < ranks.size; ++distance) {
    const int to = (ranks.rank + distance) % ranks.size,
              source = (ranks.rank - distance + ranks.size) % ranks.size;
    comm.send_recv(from[to], ranks.at(to), into[source], ranks.at(source));
  }
}

// What travels: in elements, by node and place of the destination, by place of the source and node of
// the destination, and by node and place of the source.
struct BlocksOnTheirWay {
  std::string label;
  Slice of_tokens, of_experts;
  std::array<Slice, 2> scratch;
  Blocks sent, passing, received;
};

class TwoLevelDispatcher final : public TokenDispatcher {
 public:
  TwoLevelDispatcher(Communicator& comm, const ExpertGroup& group)
      : comm_(comm),
        group_(group),
        grid_(nodes_of(group)),
        own_node_(grid_.row(comm.rank())),
        own_place_(grid_.column(comm.rank())) {}

  void exchange_counts(const std::string& label, Routing& routing) override {
    const auto own = static_cast<std::size_t>(group_.own_experts());
    const std::vector<Count> one_each(static_cast<std::size_t>(group_.split.ranks), 1);
    std::vector<Count> packed(routing.counts.size()), through = packed;
    to_experts(blocks(
        label, host_slice(std::span(routing.counts)), host_slice(std::span(routing.arriving)),
        {host_slice(std::span(packed)), host_slice(std::span(through))},
        {.sent = one_each, .received = one_each, .passing = one_each}, group_.own_experts()));
    routing.passing.assign(one_each.size(), 0);
    for (std::size_t i = 0; i < through.size(); ++i) routing.passing[i / own] += through[i];
  }
  void dispatch(const RowExchange& x) override { to_experts(blocks_of(x)); }
  void combine(const RowExchange& x) override { to_tokens(blocks_of(x)); }

 private:
  BlocksOnTheirWay blocks(const std::string& label, Slice of_tokens, Slice of_experts,
                          std::array<Slice, 2> scratch, const DispatchedRows& rows,
                          Count columns) const {
    const auto elements = [&](const std::vector<Count>& counts) {
      return in_elements(counts, columns);
    };
    return {label,
            of_tokens,
            of_experts,
            scratch,
            {grid_.rows, grid_.columns, elements(rows.sent)},
            {grid_.columns, grid_.rows, elements(rows.passing)},
            {grid_.rows, grid_.columns, elements(rows.received)}};
  }
  BlocksOnTheirWay blocks_of(const RowExchange& x) const {
    return blocks(x.label, x.of_tokens, x.of_experts, x.scratch, dispatched_rows(x.routing),
                  x.columns);
  }

  void to_experts(const BlocksOnTheirWay& x) {
    const auto& [packed, through] = x.scratch;
    {
      const CollectiveCall call = level(x, in_nodes);
      transpose_blocks(comm_, packed, x.of_tokens, x.sent);
      exchange_parts(comm_, own_node_, {through, x.passing.of_rows()},
                     {packed, x.sent.transposed().of_rows()});
    }
    const CollectiveCall call = level(x, between_nodes);
    transpose_blocks(comm_, packed, through, x.passing);
    exchange_parts(comm_, own_place_, {x.of_experts, x.received.of_rows()},
                   {packed, x.passing.transposed().of_rows()});
  }
  void to_tokens(const BlocksOnTheirWay& x) {
    const auto& [packed, through] = x.scratch;
    const Blocks passing = x.passing.transposed(), sent = x.sent.transposed();
    {
      const CollectiveCall call = level(x, between_nodes);
      exchange_parts(comm_, own_place_, {through, passing.of_rows()},
                     {x.of_experts, x.received.of_rows()});
    }
    const CollectiveCall call = level(x, in_nodes);
    transpose_blocks(comm_, packed, through, passing);
    exchange_parts(comm_, own_node_, {through, sent.of_rows()}, {packed, x.passing.of_rows()});
    transpose_blocks(comm_, x.of_tokens, through, sent);
  }

  CollectiveCall level(const BlocksOnTheirWay& x, std::string_view name) {
    comm_.set_label(fmt::format("{}{}", x.label, name));
    return {comm_, Operation::all_to_all_v, "two_level", x.of_tokens.first(0)};
  }

  Communicator& comm_;
  ExpertGroup group_;
  Grid grid_;
  RingOrder own_node_, own_place_;  // the ranks of each
};

std::unique_ptr<TokenDispatcher> make_two_level(Communicator& comm, const ExpertGroup& group) {
  const std::string reason = unmet(Need::full_nodes, comm);
  require(
      reason.empty(), [&] { return "--token-dispatcher-type two_level needs " + reason; },
      "choose another dispatcher");
  return std::make_unique<TwoLevelDispatcher>(comm, group);
}

// A message holds the counts for one place in all nodes, then those of all ranks of a node.
std::vector<DispatchLeg> counts_on_two_levels(const ExpertGroup& group) {
  const Grid grid = nodes_of(group);
  const Count inside = grid.rows * group.own_experts(),
              between = grid.columns * group.own_experts();
  return {
      {in_nodes, (grid.columns - 1) * Traffic{1, inside, 1, inside}, "(M-1) N E/P", "(M-1) N E/P"},
      {between_nodes, (grid.rows - 1) * Traffic{1, between, 1, between}, "(N-1) M E/P",
       "(N-1) M E/P"}};
}

std::vector<DispatchLeg> rows_on_two_levels(const ExpertGroup& group, const DispatchedRows& rows) {
  const Grid grid = nodes_of(group);
  const int node = group.split.rank / grid.columns, place = group.split.rank % grid.columns;
  const Blocks sent{grid.rows, grid.columns, rows.sent},
      passing{grid.columns, grid.rows, rows.passing},
      received{grid.rows, grid.columns, rows.received};
  const std::vector<Count> to_places = sent.transposed().of_rows(), from_places = passing.of_rows(),
                           to_nodes = passing.transposed().of_rows(),
                           from_nodes = received.of_rows();
  Traffic inside, between;
  for (int other = 0; other < grid.columns; ++other)
    if (other != place) inside += {1, to_places[other], 1, from_places[other]};
  for (int other = 0; other < grid.rows; ++other)
    if (other != node) between += {1, to_nodes[other], 1, from_nodes[other]};
  return {{in_nodes, inside, "rows sent for the other places in nodes",
           "rows received from the node for this place in nodes"},
          {between_nodes, between, "rows of the node sent for this place in the other nodes",
           "rows received from other nodes"}};
}

// Of all ranks of a node, for the experts of one place in all nodes.
std::array<Count, 2> rows_through_a_node(const ExpertGroup& group) {
  const Grid grid = nodes_of(group);
  const Count most = grid.columns * group.experts.most_rows(group.split.most_tokens,
                                                            grid.rows * group.own_experts());
  return {most, most};
}

std::optional<double> two_level_seconds(const ExpertGroup& group, Count pair_bytes,
                                        const LinkModel& links) {
  const Grid grid = nodes_of(group);
  const auto bytes = static_cast<double>(pair_bytes);
  return (grid.columns - 1) * links.inside.seconds(grid.rows * bytes) +
         (grid.rows - 1) * links.between.seconds(grid.columns * bytes);
}

}  // namespace

DispatchMethod two_level_dispatch() {
  return {.name = "two_level",
          .make = make_two_level,
          .counts = counts_on_two_levels,
          .rows = rows_on_two_levels,
          .scratch = rows_through_a_node,
          .seconds = two_level_seconds,
          .messages_formula = "(M-1) + (N-1) for each exchange of experts' rows"};
}

}  // namespace lockstep
