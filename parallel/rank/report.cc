#include "parallel/rank/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/gather/gather.h"
#include "parallel/rank/step_counter.h"

namespace lockstep {
namespace {

using nlohmann::json;

json to_json(const Volume& v) {
  return {v.sent_bytes, v.received_bytes, v.sent_messages, v.received_messages};
}

Volume volume_from(const json& v) {
  return {
      .sent_bytes = v[0], .received_bytes = v[1], .sent_messages = v[2], .received_messages = v[3]};
}

// JSON has no infinity.
json to_json(const OwnTime& own) {
  return {own.steps, own.seconds, std::isfinite(own.error) ? json(own.error) : json(), own.waited,
          own.first};
}

OwnTime own_time_from(const json& own) {
  return {
      .steps = own[0],
      .seconds = own[1],
      .error = own[2].is_null() ? std::numeric_limits<double>::infinity() : own[2].get<double>(),
      .waited = own[3],
      .first = own[4]};
}

json to_json(const RankRecord& record, const std::vector<TheoryRecord>& theory) {
  json text = {{"rank", record.rank},
               {"peak_bytes", record.peak_bytes},
               {"offload", {record.offload.read_bytes, record.offload.written_bytes}},
               {"in_flight", record.in_flight},
               {"attention_pairs", record.attention_pairs},
               {"busy", record.busy_seconds},
               {"idle", record.idle_seconds},
               {"exposed", record.exposed_communication_seconds},
               {"hidden", record.hidden_communication_seconds},
               {"place", {record.site.host, record.site.device}},
               {"own", to_json(record.own)},
               {"waited_for", json::array()},
               {"traffic", json::object()},
               {"theory", json::array()}};
  for (const auto& [label, volume] : record.traffic) text["traffic"][label] = to_json(volume);
  if (record.expert_rows) text["expert_rows"] = *record.expert_rows;
  for (const WaitedFor& waited : record.waited_for)
    text["waited_for"].push_back({waited.rank, waited.seconds});
  for (const TheoryRecord& t : theory)
    text["theory"].push_back({t.quantity, t.formula, t.expected, t.measured, t.exact});
  return text;
}

void read_rank(const json& text, TrainResult& result) {
  RankRecord record{.rank = text["rank"]};
  record.peak_bytes = text["peak_bytes"].get<std::map<std::string, std::int64_t>>();
  record.offload = {.read_bytes = text["offload"][0], .written_bytes = text["offload"][1]};
  record.in_flight = text["in_flight"];
  record.attention_pairs = text["attention_pairs"];
  if (text.contains("expert_rows")) record.expert_rows = text["expert_rows"];
  record.busy_seconds = text["busy"];
  record.idle_seconds = text["idle"];
  record.exposed_communication_seconds = text["exposed"];
  record.hidden_communication_seconds = text["hidden"];
  record.site = {.host = text["place"][0], .device = text["place"][1]};
  record.own = own_time_from(text["own"]);
  for (const json& waited : text["waited_for"])
    record.waited_for.push_back({.rank = waited[0], .seconds = waited[1]});
  for (const auto& [label, volume] : text["traffic"].items())
    record.traffic[label] = volume_from(volume);
  for (const json& t : text["theory"])
    result.theory.push_back({.quantity = t[0],
                             .rank = record.rank,
                             .formula = t[1],
                             .expected = t[2],
                             .measured = t[3],
                             .exact = t[4]});
  result.ranks.push_back(std::move(record));
}

}  // namespace

void collect(RankContext& context, const RankRecord& record,
             const std::vector<TheoryRecord>& theory, TrainResult& result) {
  context.world.set_label(report_label);
  for (const std::string& text : gather_text(context.world, json_line(to_json(record, theory))))
    read_rank(json::parse(text), result);
  if (context.trace) result.trace_events = gather_text(context.world, context.trace->events());
}

void collect_own_runs(Communicator& world, const OwnRun& own, TrainResult& result) {
  json mine = {{"steps", json::array()}, {"updates", json::array()}, {"lost", json::array()}};
  for (const StepRecord& s : own.steps)
    mine["steps"].push_back({s.step, s.loss, s.grad_norm, s.seconds});
  for (const UpdateRecord& u : own.updates)
    mine["updates"].push_back({u.rank, u.step, u.seconds, u.lead, u.delay, u.server});
  for (const LostRank& l : own.lost) mine["lost"].push_back({l.rank, l.step, l.why});

  world.set_label(report_label);
  std::vector<json> runs;
  for (const std::string& text : gather_text(world, json_line(mine)))
    runs.push_back(json::parse(text));
  double ended = 0;
  for (std::size_t i = 0;; ++i) {
    StepRecord all;
    int ranks = 0;
    double end = 0;
    for (const json& run : runs) {
      if (i >= run["steps"].size()) continue;
      const json& s = run["steps"][i];
      ++ranks;
      all.step = s[0];
      all.loss += s[1].get<double>();
      all.grad_norm += s[2].get<double>();
      end = std::max(end, s[3].get<double>());
    }
    if (ranks == 0) break;
    all.loss /= ranks;
    all.grad_norm /= ranks;
    all.seconds = end - std::exchange(ended, end);
    result.steps.push_back(all);
  }
  for (const json& run : runs) {
    for (const json& u : run["updates"]) {
      const json& steps = runs[u[0].get<std::size_t>()]["steps"];
      // A worker that was lost after its last push did not report its loss.
      double loss = std::numeric_limits<double>::quiet_NaN();
      for (const json& s : steps)
        if (s[0] == u[1]) loss = s[1];
      result.updates.push_back({.rank = u[0],
                                .step = u[1],
                                .server = u[5],
                                .seconds = u[2],
                                .loss = loss,
                                .lead = u[3],
                                .delay = u[4]});
    }
    for (const json& l : run["lost"])
      result.lost.push_back({.rank = l[0], .step = l[1], .why = l[2]});
  }
}

namespace {

[[noreturn]] void throw_not_finite(const std::string& what, const Communicator& world) {
  throw Error(ErrorKind::wrong_result, what,
              {.rank = world.rank(),
               .size = world.size(),
               .hint = "check --init, lower --lr, add --warmup-steps or set --grad-clip"});
}

}  // namespace

void check_finite(const StepRecord& record, double smallest_scale, const Communicator& world) {
  // No loss scale can make a loss finite: the loss is computed without it.
  const bool may_recover = record.skipped && record.loss_scale > smallest_scale;
  if (std::isfinite(record.loss) && (std::isfinite(record.grad_norm) || may_recover)) return;
  throw_not_finite(
      fmt::format("step {}: loss {}, gradient norm {}", record.step, record.loss, record.grad_norm),
      world);
}

void check_finite(const ValidationRecord& record, const Communicator& world) {
  if (std::isfinite(record.loss)) return;
  throw_not_finite(fmt::format("validation after {} steps: loss {}", record.step, record.loss),
                   world);
}

bool theory_holds(const TrainResult& result) {
  return std::ranges::all_of(
      result.theory, [](const TheoryRecord& t) { return !t.exact || t.expected == t.measured; });
}

}  // namespace lockstep
