#include "parallel/pipeline/simulator/figures.h"

namespace lockstep {

std::vector<TheoryRecord> schedule_theory(const ScheduleEntry& entry, const PipelineShape& shape,
                                          const PassTimes& times, const Timeline& timeline) {
  const Rational zero = 0;
  std::vector<TheoryRecord> lines;
  const auto makespan = entry.makespan(shape, times);
  const bool is_compute_alone =
      times.hop == zero && times.unshard == zero && times.reduce_gradients == zero;
  if (makespan && is_compute_alone)
    lines.push_back({.quantity = "makespan",
                     .formula = std::string(entry.makespan_formula),
                     .expected = value_of(*makespan),
                     .measured = value_of(timeline.makespan())});
  for (int rank = 0; rank < shape.ranks; ++rank)
    if (const auto in_flight = entry.in_flight(shape, rank))
      lines.push_back({.quantity = "in_flight",
                       .rank = rank,
                       .formula = std::string(entry.in_flight_formula),
                       .expected = static_cast<double>(*in_flight),
                       .measured = static_cast<double>(
                           timeline.ranks[static_cast<std::size_t>(rank)].in_flight)});
  return lines;
}

}  // namespace lockstep
