#include "cli/lessons/formula_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "bench/techniques/sharded.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/operations/operations.h"
#include "models/backend.h"
#include "models/data/token_layout.h"
#include "parallel/parameter_server/closed_form.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/tensor/ranks.h"
#include "parallel/tensor/traffic.h"

namespace lockstep {
namespace {

int whole_value(const FormulaValues& x, std::string_view name) {
  return static_cast<int>(x.find(name)->second);
}
Count large_value(const FormulaValues& x, std::string_view name) {
  return std::llround(x.find(name)->second);
}
double real_value(const FormulaValues& x, std::string_view name) { return x.find(name)->second; }

Link link_value(const FormulaValues& x) {
  return {.alpha_s = real_value(x, "latency_us") * 1e-6,
          .beta_s_per_byte = 1 / (real_value(x, "gb_per_s") * 1e9)};
}
LinkModel links_value(const FormulaValues& x) {
  return {.inside = link_value(x), .between = link_value(x), .ranks_per_node = 1};
}

DType type_value(const FormulaValues& x) {
  return whole_value(x, "element_bytes") == 2 ? DType::bf16 : DType::f32;
}

const AnyAlgorithm& ring_of(std::string_view operation) {
  for (const AnyAlgorithm& algorithm : find_operation(operation).algorithms)
    if (algorithm.name == "ring") return algorithm;
  throw Error(ErrorKind::bad_input, "no ring among the algorithms of " + std::string(operation));
}

double all_reduce_seconds(std::string_view algorithm, const Problem& problem,
                          const LinkModel& links) {
  return find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm).seconds(problem, links);
}

double sent_by_rank_0(const AnyAlgorithm& algorithm, const Problem& problem) {
  return static_cast<double>(algorithm.traffic(problem, 0).sent_elements * problem.element_bytes);
}

// In percent; empty if the schedule does not take this shape.
struct Bubble {
  std::optional<double> fraction, overhead, held;
};

Bubble bubble_of(const FormulaValues& x, std::string_view name, int virtual_stages) {
  const ScheduleEntry& entry = find_schedule(name);
  const PipelineShape shape{.ranks = whole_value(x, "ranks"),
                            .micro_batches = whole_value(x, "micro_batches"),
                            .virtual_stages = virtual_stages};
  try {
    complete(entry, shape);
    if (entry.check) entry.check(shape);
  } catch (const Error&) {
    return {};
  }
  const PassTimes times;
  const Rational useful = Rational(shape.micro_batches) * times.total();
  const Rational all = entry.makespan(shape, times).value(), idle = all - useful;
  const double held = entry.in_flight(shape, 0).value();
  return {100 * value_of(idle / all), 100 * value_of(idle / useful), held / virtual_stages};
}

// A sequence on a ring of 4 ranks, with one number for each query and key. The value of a key is its
// position.
constexpr int ring_ranks = 4;
constexpr Count ring_tokens = 8;
constexpr std::array<double, ring_tokens> ring_queries = {1, 0.5, -1, 1, 2, -1, 0.5, 1};
constexpr std::array<double, ring_tokens> ring_keys = {1, 3, -1, 0, 2, 1, 4, -2};

Positions positions_on_ring(int rank) {
  return TokenLayout{.order = TokenOrder::zig_zag, .ranks = ring_ranks, .rank = rank}.positions(
      ring_tokens);
}

int rank_of_query(Count query) {
  int rank = 0;
  while (positions_on_ring(rank)[0] != query && positions_on_ring(rank)[1] != query) ++rank;
  return rank;
}

std::optional<double> ring_score(Count query, Count key) {
  if (key > query) return {};
  return ring_queries.at(query) * ring_keys.at(key);
}

// One query's result over the blocks that have arrived at its rank, from the kernels that training
// uses.
struct MergedQuery {
  double out = 0, log_sum_exp = -std::numeric_limits<double>::infinity();

  void attend(Count query, const Positions& keys) {
    double q = ring_queries.at(query);
    std::vector<double> k, v;
    for (Count i = 0; i < keys.count(); ++i) {
      k.push_back(ring_keys.at(keys[i]));
      v.push_back(static_cast<double>(keys[i]));
    }
    const AttentionPart part{.sequences = 1,
                             .heads = 1,
                             .head_size = 1,
                             .kv_heads = 1,
                             .queries = {{{.first = query, .count = 1}, {}}},
                             .keys = keys,
                             .length = ring_tokens};
    const auto one = [](double& value) { return host_slice(std::span(&value, 1)); };
    MergedQuery block;
    host_backend().attention_part(one(block.out), one(block.log_sum_exp), {one(q), 1, 1},
                                  {host_slice(std::span(k)), keys.count(), 1},
                                  {host_slice(std::span(v)), keys.count(), 1}, part, {});
    host_backend().merge_attention(one(out), one(log_sum_exp), one(block.out),
                                   one(block.log_sum_exp), part);
  }
};

}  // namespace

OptionalValues message_values(const FormulaValues& x) {
  const Link link = link_value(x);
  const double bytes = real_value(x, "bytes"), pieces = real_value(x, "pieces");
  const double seconds = pieces * link.seconds(bytes / pieces);
  return {seconds, pieces * link.seconds(0), bytes / seconds, link.alpha_s / link.beta_s_per_byte};
}

OptionalValues all_reduce_values(const FormulaValues& x) {
  const LinkModel links = links_value(x);
  const Problem problem{.ranks = whole_value(x, "ranks"), .count = large_value(x, "bytes") / 4};
  const AnyAlgorithm& ring = ring_of("all_reduce");
  const auto seconds = [&](std::string_view name) {
    return all_reduce_seconds(name, problem, links);
  };
  return {seconds("ring"),
          seconds("recursive_doubling"),
          seconds("halving_doubling"),
          seconds("linear"),
          sent_by_rank_0(ring, problem),
          static_cast<double>(ring.traffic(problem, 0).sent_messages)};
}

OptionalValues buckets_values(const FormulaValues& x) {
  const Count buckets = large_value(x, "buckets"), parameters = large_value(x, "parameters");
  const Problem problem{.ranks = whole_value(x, "ranks"),
                        .count = (parameters + buckets - 1) / buckets,
                        .element_bytes = whole_value(x, "element_bytes")};
  const AnyAlgorithm& ring = ring_of("all_reduce");
  const double last = ring.seconds(problem, links_value(x)), number = static_cast<double>(buckets);
  return {number * last, last, number * sent_by_rank_0(ring, problem),
          number * static_cast<double>(ring.traffic(problem, 0).sent_messages)};
}

OptionalValues parameter_server_values(const FormulaValues& x) {
  const int workers = whole_value(x, "workers"), servers = whole_value(x, "servers");
  const double bytes = real_value(x, "bytes");
  const Link link = link_value(x);
  const Roles apart{.ranks = workers + servers, .servers = servers};
  const Roles together{.ranks = workers, .servers = workers, .colocated = true};
  const Problem problem{.ranks = workers, .count = large_value(x, "bytes") / 4};
  return {push_pull_seconds(apart, bytes, link), push_pull_seconds(together, bytes, link),
          all_reduce_seconds("ring", problem, links_value(x)), workers * bytes / servers};
}

OptionalValues pipeline_values(const FormulaValues& x) {
  const Bubble naive = bubble_of(x, "naive", 1), gpipe = bubble_of(x, "gpipe", 1),
               one_f_one_b = bubble_of(x, "1f1b", 1),
               interleaved = bubble_of(x, "interleaved", whole_value(x, "virtual_stages"));
  return {naive.fraction,       gpipe.fraction, one_f_one_b.fraction, interleaved.fraction,
          one_f_one_b.overhead, gpipe.held,     one_f_one_b.held,     interleaved.held};
}

OptionalValues tensor_layer_values(const FormulaValues& x) {
  constexpr int heads = 64;  // divisible by all numbers of ranks; the bytes do not depend on them
  const GptConfig config{.layers = 3,
                         .heads = heads,
                         .width = whole_value(x, "width"),
                         .context = whole_value(x, "tokens"),
                         .vocabulary = 1};
  const auto sent = [&](bool by_sequence, const char* label) {
    const LayerSplit split{.ranks = whole_value(x, "ranks"), .rank = 0, .by_sequence = by_sequence};
    const LabelledTraffic traffic = tensor_traffic({.config = config,
                                                    .split = split,
                                                    .options = {},
                                                    .dtype = type_value(x),
                                                    .rows = {large_value(x, "tokens")},
                                                    .layers = {.first = 1, .count = 1}});
    return static_cast<double>(traffic.at(label).sent_elements * element_bytes(type_value(x)));
  };
  constexpr int all_reduces = 2;
  const Problem problem{.ranks = whole_value(x, "ranks"),
                        .count = large_value(x, "tokens") * large_value(x, "width"),
                        .element_bytes = element_bytes(type_value(x))};
  return {sent(false, TensorRanks::forward_label), sent(false, TensorRanks::backward_label),
          sent(true, TensorRanks::backward_label),
          all_reduces * all_reduce_seconds("ring", problem, links_value(x))};
}

OptionalValues zero_values(const FormulaValues& x) {
  const int ranks = whole_value(x, "ranks");
  const auto held = [&](int stage) {
    return zero_bytes(stage, real_value(x, "parameters"), ranks, type_value(x));
  };
  const Problem problem{.ranks = ranks,
                        .count = large_value(x, "parameters"),
                        .element_bytes = element_bytes(type_value(x))};
  const auto sent = [&](std::string_view operation) {
    return sent_by_rank_0(ring_of(operation), problem);
  };
  return {held(0),
          held(1),
          held(2),
          held(3),
          sent("all_reduce"),
          sent("reduce_scatter") + 2 * sent("all_gather")};
}

// The highest score and the sum over all keys so far are computed at once, the page does it block by
// block.
OptionalValues ring_attention_values(const FormulaValues& x) {
  const Count query = large_value(x, "query");
  const int steps = whole_value(x, "step") + 1, rank = rank_of_query(query);
  constexpr double nothing_seen = -std::numeric_limits<double>::infinity();
  std::vector<double> scores;
  MergedQuery merged;
  double before = nothing_seen, highest = nothing_seen;
  Positions block = {};
  int owner = rank;
  for (int step = 0; step < steps; ++step) {
    owner = (rank - step + ring_ranks) % ring_ranks;
    block = positions_on_ring(owner);
    before = highest;
    for (Count i = 0; i < block.count(); ++i)
      if (const auto score = ring_score(query, block[i])) scores.push_back(*score);
    highest = *std::ranges::max_element(scores);
    merged.attend(query, block);
  }
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - highest);
  return {owner,
          ring_score(query, block[0]),
          ring_score(query, block[1]),
          std::exp(before - highest),
          highest,
          sum,
          merged.out,
          merged.log_sum_exp};
}

}  // namespace lockstep
