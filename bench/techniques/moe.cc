#include "bench/techniques/moe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/techniques/moe_exchange.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

// The figures of a rank.
struct MoeRank {
  double counts = 0, dispatch = 0, combine = 0;  // seconds
  Volume sent;                                   // to the experts
};

[[noreturn]] void refuse(const MoePoint& point, const std::string& what) {
  throw Error(
      ErrorKind::wrong_result,
      fmt::format("{} on {} ranks, link {}: {}", point.method, point.ranks, point.link, what),
      {.hint = "this is a bug in the dispatcher or in its closed form"});
}

// Throws Error (wrong_result) if the traffic to the experts is not that of the closed form.
Volume checked_traffic(const MoePoint& point, RankContext& context, const MoeExchange& exchange,
                       Count row_bytes) {
  const auto traffic = context.counters.by_label();
  Volume all;
  for (const DispatchLeg& leg : exchange.expected()) {
    const std::string label = ExpertRanks::dispatch_label + std::string(leg.name);
    const Volume expected{leg.traffic.sent_elements * row_bytes,
                          leg.traffic.received_elements * row_bytes, leg.traffic.sent_messages,
                          leg.traffic.received_messages};
    const auto found = traffic.find(label);
    const Volume measured = found == traffic.end() ? Volume{} : found->second;
    if (measured != expected)
      refuse(point, fmt::format("{} of rank {}: {} bytes in {} messages instead of {} in {}", label,
                                context.world.rank(), measured.sent_bytes, measured.sent_messages,
                                expected.sent_bytes, expected.sent_messages));
    all += measured;
  }
  return all;
}

MoeRank run_rank(const MoePoint& point, RankContext& context, const MoeWorld& world) {
  Transport& clock = context.world.transport();
  MoeExchange exchange(point.method, context, world);
  const auto timed = [&](auto work) {
    clock.align();
    const double begin = clock.now_seconds();
    work();
    return clock.now_seconds() - begin;
  };
  MoeRank rank;
  rank.counts = timed([&] { exchange.counts(); });
  rank.dispatch = timed([&] { exchange.dispatch(); });
  rank.combine = timed([&] { exchange.combine(); });
  rank.sent = checked_traffic(point, context, exchange, world.row_bytes());
  return rank;
}

// Drops choices beyond the capacity; returns their share.
double drop(MoeWorld& world) {
  const Count capacity = world.experts.capacity_of(world.tokens);
  Count all = 0, dropped = 0;
  for (MoeChoices& rank : world.choices)
    for (Count& rows : rank.experts) {
      all += rows;
      dropped += std::max<Count>(0, rows - capacity);
      rows = std::min(rows, capacity);
    }
  return static_cast<double>(dropped) / static_cast<double>(all);
}

void check_point(const MoePoint& point, const MoeBenchOptions& options) {
  require(options.experts % point.ranks == 0,
          fmt::format("{} ranks cannot divide {} experts", point.ranks, options.experts),
          "use ranks that divide --experts");
  require(point.per_token <= options.experts,
          fmt::format("{} experts per token of {}", point.per_token, options.experts),
          "use a smaller --per-token");
  require(!moe_skew(point.skew).is_even || point.tokens % options.experts == 0,
          fmt::format("{} tokens cannot choose {} experts evenly", point.tokens, options.experts),
          "use a multiple of --experts as --tokens, or a skew of zipf:0");
}

void measure(MoePoint& point, const MoeBenchOptions& options, std::vector<MoeChoices> choices) {
  MoeWorld world{.experts = {.number = options.experts, .per_token = point.per_token},
                 .tokens = point.tokens,
                 .columns = options.width,
                 .dtype = options.dtype,
                 .choices = std::move(choices)};
  if (point.method == "padded") {
    world.experts.capacity = options.capacity;
    point.dropped_share = drop(world);
  }
  const LinkModel links = parse_links(point.link);
  std::vector<MoeRank> ranks(world.choices.size());
  int ranks_per_node = 0;
  launch({.ranks = point.ranks,
          .fault = {},
          .clock = Clock::unit,
          .links = links,
          .device = &none_device()},
         [&](RankContext& context) {
           if (context.world.rank() == 0) ranks_per_node = context.world.ranks_per_node();
           ranks[static_cast<std::size_t>(context.world.rank())] = run_rank(point, context, world);
         });
  std::int64_t all = 0;
  for (const MoeRank& rank : ranks) {
    point.counts_seconds = std::max(point.counts_seconds, rank.counts);
    point.dispatch_seconds = std::max(point.dispatch_seconds, rank.dispatch);
    point.combine_seconds = std::max(point.combine_seconds, rank.combine);
    point.sent_bytes = std::max(point.sent_bytes, rank.sent.sent_bytes);
    point.messages = std::max(point.messages, rank.sent.sent_messages);
    all += rank.sent.sent_bytes;
  }
  point.mean_sent_bytes = all / point.ranks;
  point.expected_dispatch_seconds =
      expected_dispatch_seconds(point.method, world, ranks_per_node, links);
  // Times are sums of many messages' times.
  constexpr double rounding = 1e-9;
  if (const auto& expected = point.expected_dispatch_seconds;
      expected && std::abs(point.dispatch_seconds - *expected) > rounding * *expected)
    refuse(point, fmt::format("rows take {} s instead of {}", point.dispatch_seconds, *expected));
}

template <typename Visit>
void for_each_setting(const MoeBenchOptions& o, Visit visit) {
  for (const std::string& link : o.links)
    for (const std::string& skew : o.skews)
      for (const int tokens : o.tokens)
        for (const int per_token : o.per_token)
          for (const int ranks : o.ranks) {
            MoePoint setting{.method = {}, .skew = skew, .link = link};
            setting.ranks = ranks, setting.per_token = per_token, setting.tokens = tokens;
            visit(setting);
          }
}

}  // namespace

const std::vector<std::string>& moe_methods() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const DispatchMethod& method : dispatch_methods()) all.emplace_back(method.name);
    return all;
  }();
  return names;
}

std::vector<MoePoint> bench_moe(const MoeBenchOptions& options) {
  for (const std::string& method : options.methods)
    require(std::ranges::count(moe_methods(), method) > 0, fmt::format("no method '{}'", method),
            fmt::format("choose from {}", fmt::join(moe_methods(), ", ")));
  for (const std::string& skew : options.skews) moe_skew(skew);
  print_moe_header();
  std::vector<MoePoint> all;
  for_each_setting(options, [&](const MoePoint& setting) {
    std::vector<MoeChoices> choices;  // by rank, the same for all methods
    for (const std::string& method : options.methods) {
      MoePoint& point = all.emplace_back(setting);
      point.method = method;
      try {
        check_point(point, options);
        if (choices.empty())
          for (int rank = 0; rank < point.ranks; ++rank)
            choices.push_back(choices_of_rank(moe_skew(point.skew), rank, point.ranks,
                                              options.experts, point.per_token, point.tokens,
                                              options.seed));
        measure(point, options, choices);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::bad_input) throw;
        point.skipped = error.what();
      }
      print_moe_point(point);
    }
  });
  return all;
}

}  // namespace lockstep
