#include "bench/techniques/moe_exchange.h"

#include <algorithm>

#include "collectives/all_gather/all_gather.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

// Memory for rows, on the rank's device.
class RowsOfRank {
 public:
  RowsOfRank(RankContext& context, const MoeWorld& world)
      : ledger_(context.ledger), world_(world) {}

  Slice operator()(Tensor& tensor, Count rows) {
    ensure(tensor, {rows, world_.columns}, world_.dtype, ledger_, MemoryUse::communication);
    return tensor.slice();
  }

 private:
  Ledger& ledger_;
  const MoeWorld& world_;
};

Count rows_in(const std::vector<Count>& counts) {
  Count all = 0;
  for (const Count count : counts) all += count;
  return all;
}

// By a dispatcher of parallel/expert.
class ByDispatcher final : public MoeExchange {
 public:
  ByDispatcher(const std::string& method, RankContext& context, const MoeWorld& world)
      : world_(world),
        method_(dispatch_method(method)),
        group_{{.ranks = context.world.size(),
                .rank = context.world.rank(),
                .most_tokens = world.tokens},
               world.experts,
               context.world.ranks_per_node()},
        // No rank splits experts, so that the second communicator is not used.
        ranks_(context.world, context.world, group_.split, world.experts, method, context.ledger),
        memory_(context, world) {
    routing_.counts = world.choices[static_cast<std::size_t>(context.world.rank())].experts;
  }
  void counts() override { ranks_.exchange_counts(routing_); }
  void dispatch() override {
    const auto [of_tokens, of_experts] = rows();
    ranks_.dispatch(ExpertRanks::dispatch_label, of_experts, of_tokens, routing_, world_.columns);
  }
  void combine() override {
    const auto [of_tokens, of_experts] = rows();
    ranks_.combine(ExpertRanks::combine_label, of_tokens, of_experts, routing_, world_.columns);
  }
  std::vector<DispatchLeg> expected() const override {
    return method_.rows(group_, dispatched_rows(routing_, group_.split.ranks));
  }

 private:
  std::pair<Slice, Slice> rows() {
    return {memory_(of_tokens_, rows_in(routing_.counts)),
            memory_(of_experts_, rows_in(routing_.arriving))};
  }

  const MoeWorld& world_;
  const DispatchMethod& method_;
  ExpertGroup group_;
  ExpertRanks ranks_;
  RowsOfRank memory_;
  Routing routing_;
  Tensor of_tokens_, of_experts_;
};

// One row for each rank with some of a token's experts.
class Deduplicated final : public MoeExchange {
 public:
  Deduplicated(RankContext& context, const MoeWorld& world)
      : comm_(context.world),
        world_(world),
        memory_(context, world),
        sent_(world.choices[static_cast<std::size_t>(comm_.rank())].ranks),
        received_(sent_.size()) {}
  void counts() override {
    const std::vector<Count> one_each(sent_.size(), 1);
    comm_.set_label(ExpertRanks::counts_label);
    all_to_all_v(comm_, host_slice(std::span(received_)), host_slice(std::span(sent_)),
                 {.in = one_each, .out = one_each});
  }
  void dispatch() override { exchange(ExpertRanks::dispatch_label, sent_, received_); }
  void combine() override { exchange(ExpertRanks::combine_label, received_, sent_); }
  std::vector<DispatchLeg> expected() const override {
    Traffic traffic;
    for (int q = 0; q < comm_.size(); ++q)
      if (q != comm_.rank()) traffic += {1, sent_[q], 1, received_[q]};
    return {{"", traffic, "", ""}};
  }

 private:
  void exchange(const char* label, const std::vector<Count>& leaving,
                const std::vector<Count>& arriving) {
    comm_.set_label(label);
    const Slice from = memory_(from_, rows_in(leaving)), into = memory_(into_, rows_in(arriving));
    all_to_all_v(
        comm_, into, from,
        {.in = in_elements(leaving, world_.columns), .out = in_elements(arriving, world_.columns)});
  }

  Communicator& comm_;
  const MoeWorld& world_;
  RowsOfRank memory_;
  std::vector<Count> sent_, received_;
  Tensor from_, into_;
};

Problem all_gathered(const MoeWorld& world, int ranks, int ranks_per_node) {
  return {.ranks = ranks,
          .count = Count{ranks} * world.tokens * world.columns,
          .element_bytes = element_bytes(world.dtype),
          .ranks_per_node = ranks_per_node};
}

// All rows for all ranks, which add up what their experts have made.
class AllGathered final : public MoeExchange {
 public:
  AllGathered(RankContext& context, const MoeWorld& world)
      : comm_(context.world), world_(world), memory_(context, world) {}
  void counts() override {}
  void dispatch() override {
    comm_.set_label(ExpertRanks::dispatch_label);
    all_gather(comm_, rows(), "ring");
  }
  void combine() override {
    comm_.set_label(ExpertRanks::combine_label);
    reduce_scatter(comm_, rows(), ReduceOp::sum, "ring");
  }
  std::vector<DispatchLeg> expected() const override {
    const Count rows = Count{comm_.size() - 1} * world_.tokens, messages = comm_.size() - 1;
    return {{"", {messages, rows, messages, rows}, "", ""}};
  }

 private:
  Slice rows() { return memory_(all_, Count{comm_.size()} * world_.tokens); }

  Communicator& comm_;
  const MoeWorld& world_;
  RowsOfRank memory_;
  Tensor all_;
};

// The rows of every pair of ranks, if all have equally many.
std::optional<Count> rows_of_each_pair(const std::string& method, const MoeWorld& world) {
  const auto ranks = world.choices.size();
  const auto own = static_cast<std::size_t>(world.experts.number) / ranks;
  if (method == "padded") return static_cast<Count>(own) * world.experts.capacity_of(world.tokens);
  std::optional<Count> first;
  for (const MoeChoices& from : world.choices)
    for (std::size_t to = 0; to < ranks; ++to) {
      Count rows = method == "deduplicated" ? from.ranks[to] : 0;
      if (method != "deduplicated")
        for (std::size_t e = to * own; e < (to + 1) * own; ++e) rows += from.experts[e];
      if (first.value_or(rows) != rows) return {};
      first = rows;
    }
  return first;
}

}  // namespace

std::unique_ptr<MoeExchange> moe_exchange(const std::string& method, RankContext& context,
                                          const MoeWorld& world) {
  if (method == "deduplicated") return std::make_unique<Deduplicated>(context, world);
  if (method == "all_gather") return std::make_unique<AllGathered>(context, world);
  return std::make_unique<ByDispatcher>(method, context, world);
}

std::optional<double> expected_dispatch_seconds(const std::string& method, const MoeWorld& world,
                                                int ranks_per_node, const LinkModel& links) {
  const int ranks = static_cast<int>(world.choices.size());
  if (method == "all_gather") {
    const Estimate time =
        estimate(all_gather_ring(), all_gathered(world, ranks, ranks_per_node), links);
    return time.is_exact ? std::optional(time.seconds) : std::nullopt;
  }
  const std::optional<Count> rows = rows_of_each_pair(method, world);
  if (!rows || ranks_per_node == 0) return {};
  const ExpertGroup group{{.ranks = ranks}, world.experts, ranks_per_node};
  const Count bytes = *rows * world.row_bytes();
  return method == "deduplicated" ? all_to_all_seconds(group, bytes, links)
                                  : dispatch_method(method).seconds(group, bytes, links);
}

}  // namespace lockstep
