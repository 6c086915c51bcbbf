#include "parallel/pipeline/draw.h"

#include <fmt/color.h>
#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

fmt::color color_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return fmt::color::steel_blue;
    case Pass::backward:
      return fmt::color::sea_green;
    case Pass::input_gradient:
      return fmt::color::dark_cyan;
    case Pass::weight_gradient:
      return fmt::color::dark_golden_rod;
  }
  return fmt::color::white;
}

}  // namespace

std::string chart_of(const Timeline& timeline, int width, bool in_color) {
  // As many characters for every tick, where there is room for one at all.
  constexpr std::int64_t most_per_tick = 4;
  const std::int64_t end = std::max<std::int64_t>(timeline.end, 1);
  const double scale = end <= width ? static_cast<double>(std::min(most_per_tick, width / end))
                                    : static_cast<double>(width) / static_cast<double>(end);
  const auto column = [&](std::int64_t ticks) {
    return static_cast<std::size_t>(static_cast<double>(ticks) * scale + 0.5);
  };
  std::string chart;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    chart += fmt::format("rank {:<3} ", rank);
    std::size_t drawn = 0;
    for (const Interval& interval : timeline.ranks[rank].intervals) {
      // Two actions of one block share its time.
      const std::size_t begin = std::max(drawn, column(interval.begin));
      std::size_t until = column(interval.end);
      if (interval.action.with_next) until = (begin + until) / 2;
      chart += std::string(begin - drawn, '.');
      if (until <= begin) continue;
      const std::string label =
          fmt::format("{}{}", static_cast<char>(interval.action.pass), interval.action.micro_batch);
      const std::size_t room = until - begin;
      const std::string cell =
          fmt::format("{:<{}}", label.size() <= room ? label : label.substr(0, 1), room);
      chart += in_color ? fmt::format(fmt::bg(color_of(interval.action.pass)), "{}", cell) : cell;
      drawn = until;
    }
    chart += std::string(column(timeline.end) - drawn, '.') + "\n";
  }
  return chart;
}

}  // namespace lockstep
