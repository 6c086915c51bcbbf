#include "parallel/report.h"

#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

using nlohmann::json;

Volume total(const RankRecord& record) {
  Volume sum;
  for (const auto& [label, volume] : record.traffic) sum += volume;
  return sum;
}

double measured(const RankRecord& record, const std::string& quantity) {
  const Volume volume = total(record);
  if (quantity == "sent_bytes") return static_cast<double>(volume.sent_bytes);
  if (quantity == "received_bytes") return static_cast<double>(volume.received_bytes);
  if (quantity == "sent_messages") return static_cast<double>(volume.sent_messages);
  constexpr std::string_view peak = "peak_bytes.";
  require(quantity.starts_with(peak), "a closed form of the unknown quantity " + quantity);
  return static_cast<double>(record.peak_bytes.at(quantity.substr(peak.size())));
}

// The states that AdamW training keeps, wherever no technique shards them.
std::vector<TheoryRecord> memory_theory(const RankRecord& record, const Parameters& parameters) {
  const auto bytes = static_cast<double>(parameters.count() * element_bytes(parameters.dtype()));
  return {{.quantity = "peak_bytes.parameters",
           .rank = record.rank,
           .formula = "Psi * beta",
           .expected = bytes},
          {.quantity = "peak_bytes.gradients",
           .rank = record.rank,
           .formula = "Psi * beta",
           .expected = bytes},
          {.quantity = "peak_bytes.optimizer",
           .rank = record.rank,
           .formula = "2 * Psi * beta",
           .expected = 2 * bytes}};
}

json to_json(const Volume& v) {
  return {v.sent_bytes, v.received_bytes, v.sent_messages, v.received_messages};
}

Volume volume_from(const json& v) {
  return {
      .sent_bytes = v[0], .received_bytes = v[1], .sent_messages = v[2], .received_messages = v[3]};
}

json to_json(const RankRecord& record, const std::vector<TheoryRecord>& theory) {
  json text = {{"rank", record.rank},
               {"peak_bytes", record.peak_bytes},
               {"busy", record.busy_seconds},
               {"idle", record.idle_seconds},
               {"exposed", record.exposed_communication_seconds},
               {"hidden", record.hidden_communication_seconds},
               {"traffic", json::object()},
               {"theory", json::array()}};
  for (const auto& [label, volume] : record.traffic) text["traffic"][label] = to_json(volume);
  for (const TheoryRecord& t : theory)
    text["theory"].push_back({t.quantity, t.formula, t.expected, t.measured, t.exact});
  return text;
}

void read_rank(const json& text, TrainResult& result) {
  RankRecord record{.rank = text["rank"]};
  record.peak_bytes = text["peak_bytes"].get<std::map<std::string, std::int64_t>>();
  record.busy_seconds = text["busy"];
  record.idle_seconds = text["idle"];
  record.exposed_communication_seconds = text["exposed"];
  record.hidden_communication_seconds = text["hidden"];
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

void collect(RankContext& context, const RankRecord& record, std::vector<TheoryRecord> theory,
             const Parameters& parameters, TrainResult& result) {
  for (TheoryRecord& line : memory_theory(record, parameters)) theory.push_back(std::move(line));
  for (TheoryRecord& line : theory) line.measured = measured(record, line.quantity);

  context.world.set_label("report");
  for (const std::string& text : gather_text(context.world, to_json(record, theory).dump()))
    read_rank(json::parse(text), result);
  if (context.trace) result.trace_events = gather_text(context.world, context.trace->events());
}

}  // namespace lockstep
