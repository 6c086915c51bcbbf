#include "bench/techniques/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "bench/results/measure.h"
#include "bench/techniques/exchange_ranks.h"
#include "collectives/base/error.h"
#include "collectives/base/limits.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

double slowest_of(const std::vector<ExchangingRank>& ranks, std::size_t time) {
  double most = 0;
  for (const ExchangingRank& rank : ranks) most = std::max(most, rank.seconds[time]);
  return most;
}

// In time of a core, over links that take none. The first time, memory is new.
double processor_seconds(const Plan& plan, int repetitions) {
  const auto ranks =
      exchange_all(plan, {.clock = Clock::cpu, .device = &host_device()}, repetitions + 1);
  std::vector<double> seconds;
  for (int i = 1; i <= repetitions; ++i)
    seconds.push_back(slowest_of(ranks, static_cast<std::size_t>(i)));
  return percentile(seconds, 0.5);
}

// In virtual time, in which processors take none.
double link_seconds(const Plan& plan, const LinkModel& links, Volume* sent = nullptr) {
  const auto ranks =
      exchange_all(plan, {.clock = Clock::unit, .links = links, .device = &none_device()}, 1);
  if (sent) *sent = ranks.front().sent;
  return slowest_of(ranks, 0);
}

Plan plan_of_exchange(const ExchangeBenchOptions& options, const std::string& method, int ranks) {
  require(method != "galore", "--method galore, whose subspaces come from a training",
          "train ddp with --optimizer galore --exchange galore, and read sent_bytes.gradients");
  TrainOptions train = exchanging(options.train, method);
  train.overlap = false;
  train.global_batch = ranks;
  return plan_of(train, ranks);
}

// The times of a method on so many ranks, over all links.
struct ExchangeLine {
  std::string method;
  Plan plan;
  double processor_seconds = 0;
  // By latency: the time without that of bytes, and how it grows with the time of a byte.
  std::map<double, Link> messages = {};
};

ExchangeCrossover crossing(const ExchangeLine& line, const ExchangeLine& none, double latency) {
  const Link of_line = line.messages.at(latency), of_none = none.messages.at(latency);
  const double bytes_saved = of_none.beta_s_per_byte - of_line.beta_s_per_byte;
  const double seconds_lost =
      line.processor_seconds + of_line.alpha_s - none.processor_seconds - of_none.alpha_s;
  ExchangeCrossover found{.method = line.method,
                          .ranks = line.plan.ranks,
                          .latency_seconds = latency,
                          .is_faster = bytes_saved > 0};
  if (bytes_saved > 0 && seconds_lost > 0) found.bytes_per_second = bytes_saved / seconds_lost;
  return found;
}

void print_header() {
  fmt::print("{:<13} {:>5} {:<26}", "# exchange", "ranks", "link");
  for (const char* column : {"sent MiB", "messages", "encode ms", "GB/s", "links ms", "all ms"})
    fmt::print(" {:>10}", column);
  fmt::print("\n");
}

void print_point(const ExchangePoint& p) {
  fmt::print("{:<13} {:>5} {:<26}", p.method, p.ranks, p.link);
  if (!p.skipped.empty()) return fmt::print(" skipped: {}\n", p.skipped);
  const double rate = static_cast<double>(p.gradient_bytes) / p.processor_seconds;
  for (const std::string& text :
       {fmt::format("{:.3f}", static_cast<double>(p.message_bytes) / (1 << 20)),
        std::to_string(p.messages), fmt::format("{:.3f}", 1e3 * p.processor_seconds),
        p.processor_seconds > 0 ? fmt::format("{:.2f}", rate / 1e9) : std::string("-"),
        fmt::format("{:.3f}", 1e3 * p.link_seconds), fmt::format("{:.3f}", 1e3 * p.seconds())})
    fmt::print(" {:>10}", text);
  fmt::print("\n");
}

// Adds the points of a method on so many ranks.
ExchangeLine measure_line(const ExchangeBenchOptions& options, const std::string& method, int ranks,
                          std::vector<ExchangePoint>& points) {
  ExchangeLine line{.method = method, .plan = plan_of_exchange(options, method, ranks)};
  const double bytes =
      static_cast<double>(line.plan.model.parameter_count() * element_bytes(options.train.dtype));
  if (!options.encoding_rate) {
    // Values, gradients and a copy of them, AdamW's states, what methods keep, and encoded numbers.
    constexpr int numbers_kept = 8;
    require_memory(numbers_kept * ranks * bytes, fmt::format("{} on {} ranks", method, ranks),
                   "use --encoding-rate, which measures nothing, or a smaller --model");
    line.processor_seconds = processor_seconds(line.plan, options.repetitions);
  } else if (method != "none") {
    line.processor_seconds = bytes / *options.encoding_rate;
  }
  for (const std::string& text : options.links) {
    const LinkModel links = parse_links(text);
    ExchangePoint& point = points.emplace_back(
        ExchangePoint{.method = method, .link = text, .ranks = ranks, .skipped = {}});
    Volume sent;
    point.link_seconds = link_seconds(line.plan, links, &sent);
    point.gradient_bytes = static_cast<std::int64_t>(bytes);
    point.message_bytes = sent.sent_bytes, point.messages = sent.sent_messages;
    point.processor_seconds = line.processor_seconds;
    print_point(point);
    const Link& link = links.between;
    if (links.ranks_per_node > 0 || link.beta_s_per_byte == 0) continue;
    const double latencies =
        link_seconds(line.plan, {.inside = {link.alpha_s}, .between = {link.alpha_s}});
    line.messages[link.alpha_s] = {latencies,
                                   (point.link_seconds - latencies) / link.beta_s_per_byte};
  }
  return line;
}

void print_crossover(const ExchangeCrossover& c) {
  fmt::print(
      "# {} ranks, latency {:g} us: {} is {}faster than none{}\n", c.ranks, 1e6 * c.latency_seconds,
      c.method,
      !c.is_faster         ? "never "
      : c.bytes_per_second ? ""
                           : "always ",
      c.bytes_per_second ? fmt::format(" below {:.4g} GB/s", *c.bytes_per_second / 1e9) : "");
}

}  // namespace

TrainOptions exchanging(TrainOptions train, const std::string& method) {
  const std::size_t plus = method.find('+');
  train.exchange = method.substr(0, plus);
  if (plus == std::string::npos) return train;
  train.gather = method.substr(plus + 1);
  require(train.technique == "fsdp", fmt::format("{} without --technique fsdp", method),
          "only ranks that shard parameters gather them: use --technique fsdp");
  return train;
}

ExchangeBench bench_exchange(const ExchangeBenchOptions& options) {
  ExchangeBench bench;
  print_header();
  for (const int ranks : options.ranks) {
    std::optional<ExchangeLine> none;
    std::map<std::string, ExchangeLine> lines;
    for (const std::string& method : options.methods) try {
        const ExchangeLine line = measure_line(options, method, ranks, bench.points);
        if (method == "none") none = line;
        lines.emplace(method, line);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::bad_input) throw;
        bench.points.push_back({.method = method,
                                .link = options.links.front(),
                                .ranks = ranks,
                                .skipped = error.what()});
        print_point(bench.points.back());
      }
    if (!none) continue;
    for (const std::string& method : options.methods)
      if (const auto line = lines.find(method); method != "none" && line != lines.end())
        for (const auto& [latency, messages] : none->messages) {
          bench.crossovers.push_back(crossing(line->second, *none, latency));
          print_crossover(bench.crossovers.back());
        }
  }
  return bench;
}

}  // namespace lockstep
