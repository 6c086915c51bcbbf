#include "parallel/plan/prediction.h"

namespace lockstep {

std::vector<TheoryRecord> theory_of(const Prediction& prediction, const RankRecord& measured) {
  std::vector<TheoryRecord> lines;
  const auto add = [&](std::string quantity, std::string formula, std::int64_t expected,
                       std::int64_t counted, bool exact = true) {
    lines.push_back({.quantity = std::move(quantity),
                     .rank = measured.rank,
                     .formula = std::move(formula),
                     .expected = static_cast<double>(expected),
                     .measured = static_cast<double>(counted),
                     .exact = exact});
  };
  Volume counted;
  for (const auto& [label, volume] : measured.traffic) counted += volume;
  if (const auto& total = prediction.total) {
    const std::string &bytes = prediction.bytes_formula, &messages = prediction.messages_formula;
    add("sent_bytes", bytes, total->sent_bytes, counted.sent_bytes);
    add("received_bytes", bytes, total->received_bytes, counted.received_bytes);
    add("sent_messages", messages, total->sent_messages, counted.sent_messages);
    add("received_messages", messages, total->received_messages, counted.received_messages);
  }
  for (const auto& [label, volume] : prediction.traffic) {
    const auto found = measured.traffic.find(label);
    const auto formula = prediction.formulas.find(label);
    add("sent_bytes." + label, formula == prediction.formulas.end() ? "" : formula->second,
        volume.sent_bytes, found == measured.traffic.end() ? 0 : found->second.sent_bytes);
  }
  if (const auto& offload = prediction.offload) {
    add("offload.read_bytes", prediction.offload_read_formula, offload->read_bytes,
        measured.offload.read_bytes);
    add("offload.written_bytes", prediction.offload_written_formula, offload->written_bytes,
        measured.offload.written_bytes);
  }
  if (const auto& figure = prediction.attention_pairs)
    add("attention_pairs", figure->formula, figure->value, measured.attention_pairs, figure->exact);
  for (int use = 0; use < memory_uses; ++use) {
    const auto& figure = prediction.peak_bytes[static_cast<std::size_t>(use)];
    const std::string name(name_of(static_cast<MemoryUse>(use)));
    if (figure)
      add("peak_bytes." + name, figure->formula, figure->value, measured.peak_bytes.at(name),
          figure->exact);
  }
  if (const auto& figure = prediction.in_flight)
    add("in_flight", figure->formula, figure->value, measured.in_flight, figure->exact);
  return lines;
}

}  // namespace lockstep
