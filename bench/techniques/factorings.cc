#include "bench/techniques/factorings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/techniques/counted_ranks.h"
#include "bench/techniques/one_more_block.h"
#include "collectives/base/error.h"
#include "parallel/pipeline/execution/bubble.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/report.h"

namespace lockstep {
namespace {

using enum Axis;

bool is_wanted(const std::vector<int>& lengths, int length) {
  return lengths.empty() || std::ranges::count(lengths, length) > 0;
}

// Layers and sequences that are split over nodes are slow, and take long to simulate.
bool is_within_node(const FactoringBenchOptions& o, int t, int c) {
  const int of_node = parse_links(o.link).ranks_per_node;
  if (of_node == 0 || (!o.tensor.empty() && !o.context.empty())) return true;
  return t * c <= std::max({of_node, o.tensor.empty() ? 1 : t, o.context.empty() ? 1 : c});
}

// Returns all ways to write a number of ranks as a product of wanted lengths.
std::vector<Factoring> factorings_of_number(int ranks, const FactoringBenchOptions& o) {
  std::vector<Factoring> all;
  for (int t = 1; t <= ranks; ++t)
    for (int c = 1; ranks % t == 0 && c <= ranks / t; ++c)
      for (int p = 1; ranks / t % c == 0 && p <= ranks / t / c; ++p) {
        if (ranks / t / c % p != 0) continue;
        const int d = ranks / t / c / p;
        if (!is_wanted(o.tensor, t) || !is_wanted(o.context, c) || !is_wanted(o.pipeline, p) ||
            !is_wanted(o.data, d) || !is_within_node(o, t, c))
          continue;
        Factoring& factoring = all.emplace_back();
        factoring.lengths[tp] = t, factoring.lengths[cp] = c;
        factoring.lengths[pp] = p, factoring.lengths[dp] = d;
      }
  require(!all.empty(), fmt::format("no factors of {} ranks with these lengths", ranks),
          "the lengths given with --tp, --cp, --pp and --dp must divide --ranks");
  return all;
}

void check_theory(const Factoring& factoring, const Plan& plan, const RankRecord& record) {
  const Prediction prediction = predict(plan, record.rank, {.computes_on_host = false});
  for (const TheoryRecord& line : theory_of(prediction, record))
    if (line.exact && line.expected != line.measured)
      throw Error(ErrorKind::wrong_result,
                  fmt::format("{}, {} of rank {}: {} instead of {}", factoring.name(),
                              line.quantity, record.rank, line.measured, line.expected),
                  {.hint = "this is a bug in a technique or in its theory"});
}

// The schedule's bubble: the mean idle time of its ranks, if messages took no time.
double bubble_seconds(const Plan& plan, const std::vector<CountedRank>& ranks) {
  // The first pipeline that runs stands for all.
  std::vector<std::vector<double>> passes(static_cast<std::size_t>(plan.length(pp)));
  for (const CountedRank& rank : ranks)
    if (auto& of_stage = passes[static_cast<std::size_t>(plan.place(rank.record.rank, pp))];
        of_stage.empty())
      of_stage = rank.passes;
  double busy = 0;
  for (const auto& of_stage : passes)
    busy = std::accumulate(of_stage.begin(), of_stage.end(), busy);
  return seconds_without_messages(plan.schedule, passes) - busy / plan.length(pp);
}

// Without stages, ranks wait for the other ranks of their model along tp only.
void take_parts(Factoring& factoring, const Plan& plan, const std::vector<CountedRank>& ranks) {
  StepParts& parts = factoring.parts;
  const bool has_stages = plan.length(pp) > 1;
  const double each = 1 / static_cast<double>(ranks.size());
  for (const CountedRank& rank : ranks) {
    parts.compute += each * rank.compute_seconds;
    parts.tp += each * (rank.exposed.layers + (has_stages ? 0 : rank.exposed.model));
    parts.cp += each * rank.exposed.sequence;
    parts.dp += each * rank.exposed.replicas;
  }
  // The remaining time is spent waiting for other stages: for their messages, until this rank's
  // messages have left, to sum the norm and the tied embedding, and until the last rank has ended
  // its step. Without stages, ranks end at different times after exchanges over nodes.
  const double idle = std::max(0.0, factoring.step_seconds - parts.sum());
  if (!has_stages) {
    (plan.copies() > 1 ? parts.dp : parts.tp) += idle;
    return;
  }
  parts.bubble = std::min(idle, bubble_seconds(plan, ranks));
  parts.pp = idle - parts.bubble;
}

void simulate(Factoring& factoring, const Plan& plan, const FactoringBenchOptions& options) {
  const std::vector<CountedRank> ranks =
      simulate_kinds_of_ranks(plan, options.roofline, options.link);
  factoring.kinds_of_ranks = static_cast<int>(ranks.size());
  factoring.step_seconds = slowest(ranks);
  take_parts(factoring, plan, ranks);
  for (const CountedRank& rank : ranks) {
    check_theory(factoring, plan, rank.record);
    if (!factoring.peak_bytes.empty() && rank.record.peak_bytes.at("total") <= factoring.bytes())
      continue;
    factoring.peak_bytes = rank.record.peak_bytes;
    factoring.busiest_rank = rank.record.rank;
  }
}

// Simulates the plan without and with one more block in each stage. The times are the difference; the
// memory is that of the plan itself.
void simulate_block(Factoring& factoring, const Plan& plan, const FactoringBenchOptions& options) {
  const Plan longer = with_one_more_block(plan, options);
  Factoring more = factoring;
  simulate(more, longer, options);
  simulate(factoring, plan, options);
  factoring.step_seconds = more.step_seconds - factoring.step_seconds;
  factoring.parts = more.parts - factoring.parts;
  // Hidden communication differs by rounding, and by chunks that differ by an element.
  for (double* part : {&factoring.parts.bubble, &factoring.parts.tp, &factoring.parts.cp,
                       &factoring.parts.dp, &factoring.parts.pp})
    if (std::abs(*part) < 1e-6 * factoring.step_seconds) *part = 0;
  factoring.expected_parts = expected_parts_of_block(plan, longer, options);
}

bool is_within(const StepParts& parts, double limit, bool alone) {
  constexpr double rounding = 1e-9;
  const double exposed = alone ? parts.largest_exposed() : parts.exposed();
  return exposed <= (limit + rounding) * parts.compute;
}

}  // namespace

std::string Factoring::name() const {
  return fmt::format("tp {}, cp {}, pp {}, dp {}", lengths[tp], lengths[cp], lengths[pp],
                     lengths[dp]);
}

std::vector<Factoring> factorings_of(const FactoringBenchOptions& options) {
  std::vector<Factoring> all;
  for (const int ranks : options.ranks) {
    const std::vector<Factoring> of_number = factorings_of_number(ranks, options);
    all.insert(all.end(), of_number.begin(), of_number.end());
  }
  return all;
}

Plan plan_of_factoring(Factoring& factoring, const FactoringBenchOptions& o) {
  TrainOptions train = o.train;
  for (const Axis axis : axes()) train.mesh_lengths[axis] = factoring.lengths[axis];
  if (train.global_batch == 0) train.global_batch = factoring.ranks();
  const int of_replica = train.global_batch / factoring.lengths[dp];
  train.micro_batches = factoring.micro_batches = std::max(1, of_replica / o.micro_batch_size);
  return plan_of(train, factoring.ranks());
}

std::vector<Factoring> bench_factorings(const FactoringBenchOptions& options,
                                        std::optional<Error>* interruption) {
  std::vector<Factoring> all = factorings_of(options);
  for (Factoring& factoring : all) try {
      if (interruption && *interruption)
        factoring.refused = "not simulated: the search was interrupted";
      else
        (options.per_block ? simulate_block : simulate)(
            factoring, plan_of_factoring(factoring, options), options);
    } catch (const Error& error) {
      const bool ends_search = interruption && error.kind() == ErrorKind::interrupted;
      if (error.kind() != ErrorKind::bad_input && !ends_search) throw;
      factoring.refused = error.what();
      if (ends_search) *interruption = error;
    }
  std::ranges::stable_sort(all, [](const Factoring& a, const Factoring& b) {
    if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
    return a.step_seconds < b.step_seconds;
  });
  return all;
}

MostRanks most_ranks(const std::vector<Factoring>& factorings, double limit, bool alone) {
  MostRanks most{.expected = 0};
  for (const Factoring& f : factorings) {
    if (!f.refused.empty()) continue;
    if (is_within(f.parts, limit, alone) && (!most.measured || f.ranks() > most.measured->ranks()))
      most.measured = &f;
    if (!f.expected_parts) most.expected.reset();
    if (most.expected && is_within(*f.expected_parts, limit, alone))
      most.expected = std::max(*most.expected, f.ranks());
  }
  return most;
}

const Factoring* fastest(const std::vector<Factoring>& factorings,
                         const FactoringBenchOptions& options) {
  for (const Factoring& factoring : factorings)
    if (factoring.refused.empty() &&
        (!options.memory_limit || factoring.bytes() <= *options.memory_limit))
      return &factoring;
  return nullptr;
}

}  // namespace lockstep
