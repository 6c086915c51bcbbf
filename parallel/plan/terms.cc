#include "parallel/plan/terms.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace lockstep {
namespace {

void add_formula(std::string& sum, const std::string& term) {
  if (!sum.empty() && !term.empty()) sum += " + ";
  sum += term;
}

void add_figure(std::optional<Figure>& sum, const std::optional<Figure>& term) {
  if (!term) return;
  if (!sum) sum.emplace();
  sum->value += term->value;
  add_formula(sum->formula, term->formula);
  sum->exact = sum->exact && term->exact;
}

void add_traffic(Prediction& sum, const Terms& terms) {
  for (const auto& [label, volume, formula] : terms.traffic) {
    if (!formula.empty()) add_formula(sum.formulas[label], formula);
    if (volume == Volume{}) continue;
    if (!label.empty()) sum.traffic[label] += volume;
    *sum.total += volume;
  }
  add_formula(sum.bytes_formula, terms.bytes_formula);
  add_formula(sum.messages_formula, terms.messages_formula);
}

void add_offload(Prediction& sum, const Terms& terms) {
  if (terms.offload) sum.offload = sum.offload.value_or(TierTraffic{}) + *terms.offload;
  add_formula(sum.offload_read_formula, terms.offload_read_formula);
  add_formula(sum.offload_written_formula, terms.offload_written_formula);
}

std::optional<Figure> peak_of(MemoryUse use, const std::vector<Terms>& parts) {
  std::optional<Figure> peak;
  std::array<Count, moments_of_peaks> held = {};
  for (const Terms& terms : parts)
    for (const Terms::Held& term : terms.memory) {
      if (term.use != use) continue;
      add_figure(peak, Figure{.formula = term.formula, .exact = term.exact});
      held[static_cast<std::size_t>(term.moment)] += term.bytes;
    }
  if (!peak) return peak;
  const auto at = [&](Moment moment) { return held[static_cast<std::size_t>(moment)]; };
  Count scratch = 0;
  for (int moment = 0; moment < moments_of_peaks; ++moment)
    if (const Moment each{static_cast<std::uint8_t>(moment)};
        each != Moment::always && each != Moment::after_validation)
      scratch = std::max(scratch, at(each));
  const Count later = at(Moment::after_validation);
  peak->value = at(Moment::always) + later + scratch;
  peak->exact = peak->exact && (later == 0 || scratch == 0);
  return peak;
}

}  // namespace

void Terms::send(std::string label, const Traffic& t, Count element_bytes, std::string formula) {
  traffic.push_back({.label = std::move(label),
                     .volume = {.sent_bytes = t.sent_elements * element_bytes,
                                .received_bytes = t.received_elements * element_bytes,
                                .sent_messages = t.sent_messages,
                                .received_messages = t.received_messages},
                     .formula = std::move(formula)});
}

Prediction sum_of_terms(std::vector<Terms> parts) {
  // For the formulas; numbers add up in any order.
  std::ranges::sort(parts, {}, [](const Terms& terms) { return std::pair(terms.part, terms.set); });
  Prediction sum;
  for (const Terms& terms : parts) {
    add_traffic(sum, terms);
    add_offload(sum, terms);
    add_figure(sum.attention_pairs, terms.attention_pairs);
    sum.attentions += terms.attentions;
    add_figure(sum.in_flight, terms.in_flight);
    assert(!(sum.bubble_fraction && terms.bubble_fraction));  // only the schedule has one
    if (terms.bubble_fraction) sum.bubble_fraction = terms.bubble_fraction;
  }
  if (std::ranges::any_of(parts, &Terms::has_unknown_traffic)) sum.total.reset();
  for (std::string* const formula : {&sum.bytes_formula, &sum.messages_formula})
    if (formula->empty()) *formula = "0";
  for (int use = 0; use < memory_uses; ++use)
    sum.peak_bytes[static_cast<std::size_t>(use)] = peak_of(static_cast<MemoryUse>(use), parts);
  return sum;
}

}  // namespace lockstep
