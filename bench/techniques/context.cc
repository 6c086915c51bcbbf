#include "bench/techniques/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "bench/results/measure.h"
#include "bench/techniques/counted_ranks.h"
#include "bench/techniques/plain_attention.h"
#include "bench/techniques/trained_ranks.h"
#include "collectives/base/error.h"
#include "parallel/plan/make_plan.h"
#include "parallel/predict/predict.h"

namespace lockstep {
namespace {

// N of ulysses-N-ring; 0 for another name.
int mixed_ranks(std::string_view method) {
  constexpr std::string_view begin = "ulysses-", end = "-ring";
  if (!method.starts_with(begin) || !method.ends_with(end)) return 0;
  if (method.size() <= begin.size() + end.size()) return 0;
  const char *first = method.data() + begin.size(),
             *last = method.data() + method.size() - end.size();
  int ranks = 0;
  const auto [stop, error] = std::from_chars(first, last, ranks);
  return error == std::errc() && stop == last && ranks > 1 ? ranks : 0;
}

void check_method(const std::string& method) {
  require(std::ranges::count(context_methods(), method) > 0 || mixed_ranks(method) > 0,
          fmt::format("no method '{}'", method),
          fmt::format("choose from {}; ulysses-N-ring has any N above 1",
                      fmt::join(context_methods(), ", ")));
}

TrainOptions options_of(const ContextPoint& point, const ContextBenchOptions& options) {
  TrainOptions train = options.train;
  train.sequence_length = point.length;
  train.threads = options.clock == Clock::wall ? 0 : 1;
  constexpr std::string_view ring = "ring-";
  if (point.method == "one-rank") {
    train.technique = "serial";
  } else if (point.method.starts_with(ring)) {
    train.technique = "ring-attention";
    train.layout = point.method.substr(ring.size());
  } else if (const int inside = mixed_ranks(point.method); inside > 0) {
    require(point.ranks > inside, fmt::format("groups of {} of {} ranks", inside, point.ranks),
            "there is no ring of one group: use more ranks");
    train.technique = "cp";
    train.ulysses_ranks = inside;
    train.ring_ranks = point.ranks / inside;
  } else {
    train.technique = point.method == "ulysses" ? "ulysses" : "cp";
  }
  return train;
}

// The model with the point's heads, for sequences of its length.
GptConfig model_of(const ContextPoint& point, const ContextBenchOptions& options) {
  GptConfig model = gpt_config(options.train.model);
  model.heads = point.heads;
  model.kv_heads = point.kv_heads;
  model.context = point.length;
  check(model);
  return model;
}

ContextPoint::ByName sent_by_label(const std::map<std::string, Volume, std::less<>>& traffic) {
  ContextPoint::ByName sent;
  for (const auto& [label, volume] : traffic)
    if (volume.sent_bytes > 0) sent[label] = volume.sent_bytes;
  return sent;
}

// Adds the counts of all ranks to the point. Throws Error (wrong_result) if one differs from its
// closed form.
void take_ranks(ContextPoint& point, const Plan& plan, const std::vector<CountedRank>& ranks,
                const Environment& environment) {
  point.exposed_seconds = 0;
  point.pairs.clear();
  point.expected_pairs.clear();
  std::int64_t most_sent = -1, most_held = -1;
  for (const CountedRank& rank : ranks) {
    const RankRecord& record = rank.record;
    const Prediction prediction = predict(plan, record.rank, environment);
    for (const TheoryRecord& line : theory_of(prediction, record))
      if (line.exact && line.expected != line.measured)
        throw Error(
            ErrorKind::wrong_result,
            fmt::format("{} on {} ranks, {} of rank {}: {} instead of {}", point.method,
                        point.ranks, line.quantity, record.rank, line.measured, line.expected),
            {.hint = "this is a bug in context parallelism or in its theory"});
    point.exposed_seconds +=
        record.exposed_communication_seconds / static_cast<double>(ranks.size());
    if (prediction.attention_pairs) {
      point.pairs.push_back(record.attention_pairs);
      point.expected_pairs.push_back(prediction.attention_pairs->value);
    }
    auto sent = sent_by_label(record.traffic);
    if (exchanged_bytes(sent) > most_sent) {
      most_sent = exchanged_bytes(sent);
      point.sent_bytes = std::move(sent);
      point.expected_sent_bytes = sent_by_label(prediction.traffic);
    }
    if (record.peak_bytes.at("total") <= most_held) continue;
    most_held = record.peak_bytes.at("total");
    point.peak_bytes = record.peak_bytes;
    point.expected_peak_bytes.clear();
    for (int use = 0; use < memory_uses; ++use)
      if (const auto& figure = prediction.peak_bytes[static_cast<std::size_t>(use)];
          figure && figure->exact)
        point.expected_peak_bytes[std::string(name_of(static_cast<MemoryUse>(use)))] =
            figure->value;
  }
}

// Only attention takes time: no other operation, no access to memory and no message.
void simulate_attention(ContextPoint& point, const Plan& plan, const Roofline& roofline) {
  if (point.expected_pairs.empty()) return;
  const Roofline only{.flops_per_s = roofline.flops_per_s,
                      .bytes_per_s = std::numeric_limits<double>::infinity(),
                      .timed = Roofline::Timed::attention};
  point.attention_seconds = slowest(simulate_ranks(plan, only, "free"));
  // Two products of queries and keys in forward, five in backward.
  constexpr double operations = 7 * 2;
  point.expected_attention_seconds =
      static_cast<double>(*std::ranges::max_element(point.expected_pairs)) * operations *
      static_cast<double>(plan.model.head_size()) / roofline.flops_per_s;
}

// Measures all methods at one setting, alternating between them.
class ContextSetting {
 public:
  ContextSetting(const ContextBenchOptions& options, std::vector<ContextPoint> points)
      : options_(options),
        points_(std::move(points)),
        plans_(points_.size()),
        seconds_(plans_.size()) {
    for (std::size_t i = 0; i < points_.size(); ++i) {
      ContextPoint& point = points_[i];
      try {
        plans_[i] = plan_of(options_of(point, options), point.ranks, model_of(point, options));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::bad_input) throw;
        point.skipped = error.what();
      }
    }
  }

  std::vector<ContextPoint> run() {
    const int repetitions = options_.simulates ? 1 : options_.repetitions;
    for (int repetition = 0; repetition < repetitions; ++repetition)
      for (std::size_t k = 0; k < points_.size(); ++k) {
        // In reverse order every second time.
        const std::size_t i = repetition % 2 == 0 ? k : points_.size() - 1 - k;
        if (plans_[i]) options_.simulates ? simulate(i) : measure(i);
      }
    for (std::size_t i = 0; i < points_.size(); ++i)
      if (plans_[i]) finish(points_[i], *plans_[i], seconds_[i]);
    return std::move(points_);
  }

 private:
  void simulate(std::size_t i) {
    ContextPoint& point = points_[i];
    const std::vector<CountedRank> ranks =
        simulate_ranks(*plans_[i], options_.roofline, point.link);
    seconds_[i].push_back(slowest(ranks));
    take_ranks(point, *plans_[i], ranks, {.computes_on_host = false});
    simulate_attention(point, *plans_[i], options_.roofline);
  }

  void measure(std::size_t i) {
    LaunchOptions world{.ranks = points_[i].ranks, .fault = {}, .clock = options_.clock};
    if (options_.clock != Clock::wall) world.links = parse_links(points_[i].link);
    world.device = &host_device();
    take_ranks(points_[i], *plans_[i],
               train_ranks(*plans_[i], world, seconds_[i], points_[i].trained),
               {.multiplies_bf16 = host_multiplies_bf16()});
  }

  static void finish(ContextPoint& point, const Plan& plan, const std::vector<double>& seconds) {
    point.step_seconds = percentile(seconds, 0.5);
    if (point.step_seconds > 0)
      point.tokens_per_second = static_cast<double>(plan.tokens_per_step()) / point.step_seconds;
    if (point.ranks > 1) return;
    const AttentionShape shape{.sequences = plan.options.global_batch,
                               .length = point.length,
                               .heads = plan.model.heads,
                               .head_size = plan.model.head_size(),
                               .kv_heads = plan.model.key_value_heads()};
    point.scores_bytes = plan.model.layers * PlainAttention::kept_bytes(shape, plan.options.dtype);
  }

  const ContextBenchOptions& options_;
  std::vector<ContextPoint> points_;
  std::vector<std::optional<Plan>> plans_;  // none for a skipped point
  std::vector<std::vector<double>> seconds_;
};

// Calls visit(point) for each setting, with the point's fields of the setting.
template <typename Visit>
void for_each_setting(const ContextBenchOptions& o, Visit visit) {
  const GptConfig model = gpt_config(o.train.model);
  for (const std::string& link : o.links)
    for (const int heads : o.heads)
      for (const int kv_heads : o.kv_heads)
        for (const int length : o.lengths)
          for (const int ranks : o.ranks) {
            ContextPoint point{.link = link, .ranks = ranks};
            point.heads = heads > 0 ? heads : model.heads;
            point.kv_heads = kv_heads > 0 ? kv_heads : heads > 0 ? heads : model.key_value_heads();
            point.length = length > 0 ? length : model.context;
            visit(point, ranks == o.ranks.front());
          }
}

}  // namespace

const std::vector<std::string>& context_methods() {
  static const std::vector<std::string> names = {"one-rank",      "ring-contiguous", "ring-zig-zag",
                                                 "ring-striped",  "all-gather",      "ulysses",
                                                 "ulysses-2-ring"};
  return names;
}

std::vector<ContextPoint> bench_context(const ContextBenchOptions& options) {
  for (const std::string& method : options.methods) check_method(method);
  print_context_header();
  std::vector<ContextPoint> all;
  for_each_setting(options, [&](const ContextPoint& setting, bool is_first) {
    std::vector<ContextPoint> points;
    for (const std::string& method : options.methods) {
      ContextPoint point = setting;
      point.method = method;
      if (method == "one-rank") {
        if (!is_first) continue;  // the same for any number of ranks
        point.ranks = 1;
      }
      points.push_back(std::move(point));
    }
    for (ContextPoint& point : ContextSetting(options, std::move(points)).run()) {
      print_context_point(point);
      print_slow(point.trained);
      all.push_back(std::move(point));
    }
  });
  return all;
}

}  // namespace lockstep
