#include "bench/techniques/moe_pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/techniques/counted_ranks.h"
#include "bench/techniques/moe_choices.h"
#include "collectives/base/error.h"
#include "parallel/plan/make_plan.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/report.h"

namespace lockstep {
namespace {

constexpr int columns_of_head = 64;

Plan plan_of_pairs(const MoePairPoint& point, const MoeBenchOptions& options,
                   const MoePairOptions& pairs, bool in_turns) {
  require(options.width % columns_of_head == 0, fmt::format("--width {}", options.width),
          fmt::format("a model for --pairs needs a multiple of {}", columns_of_head));
  const GptConfig model{
      .layers = pairs.layers,
      .heads = options.width / columns_of_head,
      .width = options.width,
      .context = point.tokens,
      .vocabulary = 256,
      .experts = {
          .number = options.experts, .per_token = point.per_token, .width = pairs.expert_width}};
  TrainOptions train = default_options("moe");
  train.sequence_length = point.tokens;
  train.micro_batches = pairs.micro_batches;
  train.global_batch = point.ranks * pairs.micro_batches;
  train.mesh_lengths[Axis::pp] = pairs.pipeline_ranks;
  train.expert_ranks = point.ranks;
  train.schedule = "dualpipe-v";
  train.overlap_pairs = in_turns;
  train.dtype = options.dtype;
  train.expert_choices = moe_skew(point.skew).is_even ? "in_turn" : point.skew;
  train.threads = 1;
  return plan_of(train, point.ranks * pairs.pipeline_ranks, model);
}

void check_figures(const Plan& plan, const RankRecord& record) {
  const Prediction prediction = predict(plan, record.rank, {.computes_on_host = false});
  for (const TheoryRecord& line : theory_of(prediction, record))
    if (line.exact && line.expected != line.measured)
      throw Error(ErrorKind::wrong_result,
                  fmt::format("pairs, {} of rank {}: {} instead of {}", line.quantity, record.rank,
                              line.measured, line.expected),
                  {.hint = "this is a bug in the overlap of pairs or in its theory"});
}

MoePairStep simulate_pairs(const Plan& plan, const MoePairOptions& pairs, const std::string& link,
                           std::string* trace) {
  const std::vector<CountedRank> ranks = simulate_ranks(plan, pairs.roofline, link, trace);
  MoePairStep step{.seconds = slowest(ranks)};
  for (const CountedRank& rank : ranks) {
    check_figures(plan, rank.record);
    step.exposed_seconds += rank.exposed.experts / static_cast<double>(ranks.size());
    step.peak_bytes = std::max(step.peak_bytes, rank.record.peak_bytes.at("total"));
  }
  return step;
}

void print_pairs_header() {
  fmt::print("{:<10} {:>5} {:>4} {:>7} {:<30}", "# a step", "ranks", "K", "tokens", "link");
  for (const char* column : {"one by one", "in turns ms", "tokens/s", "in turns", "faster",
                             "exposed ms", "in turns", "peak MiB", "in turns"})
    fmt::print(" {:>11}", column);
  fmt::print("\n");
}

void print_pairs(const MoePairPoint& p) {
  fmt::print("{:<10} {:>5} {:>4} {:>7} {:<30}", p.skew, p.ranks, p.per_token, p.tokens, p.link);
  if (!p.skipped.empty()) return fmt::print(" skipped: {}\n", p.skipped);
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); };
  const auto mib = [](std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
  };
  for (const std::string& text : {ms(p.one_by_one.seconds), ms(p.in_turns.seconds),
                                  fmt::format("{:.0f}", p.tokens_per_second(p.one_by_one)),
                                  fmt::format("{:.0f}", p.tokens_per_second(p.in_turns)),
                                  fmt::format("{:.3f}", p.one_by_one.seconds / p.in_turns.seconds),
                                  ms(p.one_by_one.exposed_seconds), ms(p.in_turns.exposed_seconds),
                                  mib(p.one_by_one.peak_bytes), mib(p.in_turns.peak_bytes)})
    fmt::print(" {:>11}", text);
  fmt::print("\n");
}

}  // namespace

std::vector<MoePairPoint> bench_moe_pairs(const MoeBenchOptions& options,
                                          const MoePairOptions& pairs, std::string* trace) {
  print_pairs_header();
  std::vector<MoePairPoint> all;
  for (const std::string& link : options.links)
    for (const std::string& skew : options.skews)
      for (const int tokens : options.tokens)
        for (const int per_token : options.per_token)
          for (const int ranks : options.ranks) {
            MoePairPoint& point = all.emplace_back();
            point.skew = skew, point.link = link;
            point.ranks = ranks, point.per_token = per_token, point.tokens = tokens;
            point.bytes_per_second = 1 / parse_links(link).between.beta_s_per_byte;
            try {
              const Plan before = plan_of_pairs(point, options, pairs, false),
                         after = plan_of_pairs(point, options, pairs, true);
              point.tokens_of_step = before.tokens_per_step();
              point.one_by_one = simulate_pairs(before, pairs, link, nullptr);
              const bool is_traced = trace && trace->empty();
              point.in_turns = simulate_pairs(after, pairs, link, is_traced ? trace : nullptr);
            } catch (const Error& error) {
              if (error.kind() != ErrorKind::bad_input) throw;
              point.skipped = error.what();
            }
            print_pairs(point);
          }
  return all;
}

}  // namespace lockstep
