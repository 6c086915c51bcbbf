#include "parallel/pipeline/simulator/draw.h"

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
    case Pass::unshard:
      return fmt::color::medium_purple;
    case Pass::reshard:
      return fmt::color::gray;
    case Pass::reduce_gradients:
      return fmt::color::indian_red;
  }
  return fmt::color::white;
}

// "F3": a micro-batch. "U2": a stage.
std::string label_of(const Action& action) {
  return fmt::format("{}{}", static_cast<char>(action.pass),
                     is_compute(action.pass) ? action.micro_batch : action.stage);
}

class Chart {
 public:
  // Every tick gets the same number of characters, if there is room for at least one.
  Chart(const Timeline& timeline, int width, bool in_color)
      : timeline_(timeline), in_color_(in_color) {
    constexpr std::int64_t most_per_tick = 4;
    const std::int64_t end = std::max<std::int64_t>(timeline.end, 1);
    scale_ = end <= width ? static_cast<double>(std::min(most_per_tick, width / end))
                          : static_cast<double>(width) / static_cast<double>(end);
  }

  // Draws either a rank's computing actions or its other ones.
  std::string line(const RankTimeline& rank, bool computing, char idle) const {
    std::string text;
    std::size_t drawn = 0;
    for (const Interval& interval : rank.intervals) {
      if (is_compute(interval.action.pass) != computing) continue;
      // Two actions of one block share its time.
      const std::size_t begin = std::max(drawn, column(interval.begin));
      std::size_t until = column(interval.end);
      if (interval.action.with_next) until = (begin + until) / 2;
      if (until <= begin) continue;
      text += std::string(begin - drawn, idle) + cell(interval.action, until - begin);
      drawn = until;
    }
    if (idle != ' ') text += std::string(column(timeline_.end) - drawn, idle);
    return text + "\n";
  }

 private:
  std::size_t column(std::int64_t ticks) const {
    return static_cast<std::size_t>(static_cast<double>(ticks) * scale_ + 0.5);
  }
  std::string cell(const Action& action, std::size_t room) const {
    const std::string label = label_of(action);
    const std::string text =
        fmt::format("{:<{}}", label.size() <= room ? label : label.substr(0, 1), room);
    return in_color_ ? fmt::format(fmt::bg(color_of(action.pass)), "{}", text) : text;
  }

  const Timeline& timeline_;
  bool in_color_;
  double scale_ = 1;
};

bool has_communication(const Timeline& timeline) {
  return std::ranges::any_of(timeline.ranks, [](const RankTimeline& rank) {
    return std::ranges::any_of(rank.intervals, [](const Interval& interval) {
      return !is_compute(interval.action.pass) && interval.end > interval.begin;
    });
  });
}

}  // namespace

std::string chart_of(const Timeline& timeline, int width, bool in_color) {
  const Chart chart(timeline, width, in_color);
  const bool is_two_lines = has_communication(timeline);
  return text_by_rank(static_cast<int>(timeline.ranks.size()), [&](int rank) {
    const RankTimeline& line = timeline.ranks[static_cast<std::size_t>(rank)];
    std::string text = fmt::format("rank {:<3} ", rank) + chart.line(line, true, '.');
    if (is_two_lines) text += fmt::format("{:<9}", "") + chart.line(line, false, ' ');
    return text;
  });
}

std::string text_by_rank(int ranks, const std::function<std::string(int rank)>& text_of_rank) {
  constexpr int at_each_end = 50;
  const int hidden = std::max(0, ranks - 2 * at_each_end);
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) {
    if (hidden > 0 && rank == at_each_end) {
      text += fmt::format("... {} more ranks\n", hidden);
      rank += hidden;
    }
    text += text_of_rank(rank);
  }
  return text;
}

}  // namespace lockstep
