#include "parallel/pipeline/schedules/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

constexpr std::string_view block_suffix = ")OVERLAP_F_B", wait_prefix = "WAIT_";

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string_view::npos; begin = end + 1) {
    end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
  }
  return parts;
}

std::string trimmed(const std::string& text) {
  const std::string_view blank = " \t\r\"";
  const std::size_t begin = text.find_first_not_of(blank);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

// Removes the number at the beginning of `text`, of at most 6 digits, and returns it.
std::optional<int> take_number(std::string_view& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 6) return {};
  int number = 0;
  std::from_chars(text.data(), text.data() + digits, number);
  text.remove_prefix(digits);
  return number;
}

std::optional<Pass> pass_named(std::string_view name) {
  for (const Pass pass :
       {Pass::forward, Pass::backward, Pass::input_gradient, Pass::weight_gradient, Pass::unshard,
        Pass::reshard, Pass::reduce_gradients})
    if (name_of(pass) == name) return pass;
  return {};
}

// Returns nothing for a cell that follows from the actions: a message, or the wait for a message or
// a collective.
std::optional<Action> action_from(std::string_view cell, std::string_view name, std::size_t line) {
  std::string_view rest = cell;
  const std::optional<int> stage = take_number(rest);
  std::string_view word = rest.substr(0, rest.find_first_of("0123456789"));
  rest.remove_prefix(word.size());
  const std::optional<int> micro_batch = take_number(rest);
  const bool is_wait = word.starts_with(wait_prefix);
  if (is_wait) word.remove_prefix(wait_prefix.size());
  const bool is_message =
      word == "SEND_F" || word == "RECV_F" || word == "SEND_B" || word == "RECV_B";
  const std::optional<Pass> pass = pass_named(word);
  const bool computes = pass && is_compute(*pass);
  require(stage && rest.empty() && (is_message || (pass && !(is_wait && computes))) &&
              (is_message || computes) == micro_batch.has_value(),
          fmt::format("{}, line {}: '{}' is not an action", name, line, cell),
          "write stage, pass (F, B, I or W) and micro-batch, for example 2F0; or a stage and "
          "UNSHARD, RESHARD or REDUCE_GRAD");
  if (is_message || is_wait) return {};
  return Action{
      .stage = *stage, .pass = *pass, .micro_batch = micro_batch.value_or(Action::whole_stage)};
}

void add_cell(std::vector<Action>& actions, const std::string& cell, std::string_view name,
              std::size_t line) {
  if (cell.empty()) return;
  if (!cell.starts_with('(') || !cell.ends_with(block_suffix)) {
    if (const auto action = action_from(cell, name, line)) actions.push_back(*action);
    return;
  }
  const std::string inner = cell.substr(1, cell.size() - 1 - block_suffix.size());
  for (const std::string& part : split(inner, ';')) {
    const auto action = action_from(trimmed(part), name, line);
    require(action && is_compute(action->pass),
            fmt::format("{}, line {}: '{}' is a block with communication", name, line, cell),
            "a block is of two passes");
    actions.push_back(*action);
    actions.back().with_next = true;
  }
  actions.back().with_next = false;
}

// Sets how many stages and micro-batches the actions have.
void set_counts(Schedule& schedule) {
  schedule.stages = schedule.micro_batches = 0;
  for (const std::vector<Action>& actions : schedule.by_rank)
    for (const Action& action : actions) {
      schedule.stages = std::max(schedule.stages, action.stage + 1);
      schedule.micro_batches = std::max(schedule.micro_batches, action.micro_batch + 1);
    }
}

void number_from_zero(Schedule& schedule) {
  struct Range {
    int least = std::numeric_limits<int>::max(), most = 0;
  };
  const auto passes_of = [](const Action& action) {
    return std::pair{action.stage, action.pass == Pass::forward};
  };
  std::map<std::pair<int, bool>, Range> ranges;
  for (const std::vector<Action>& actions : schedule.by_rank)
    for (const Action& action : actions) {
      if (!is_compute(action.pass)) continue;
      Range& range = ranges[passes_of(action)];
      range.least = std::min(range.least, action.micro_batch);
      range.most = std::max(range.most, action.micro_batch);
    }
  schedule.micro_batches = 0;
  for (const auto& [passes, range] : ranges)
    schedule.micro_batches = std::max(schedule.micro_batches, range.most - range.least + 1);
  for (std::vector<Action>& actions : schedule.by_rank)
    for (Action& action : actions)
      if (is_compute(action.pass) && ranges[passes_of(action)].least == 1 &&
          ranges[passes_of(action)].most == schedule.micro_batches)
        --action.micro_batch;
  set_counts(schedule);
}

}  // namespace

std::string csv_of(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.by_rank) {
    std::string line;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      std::string cell = text_of(actions[i]);
      if (actions[i].with_next) {
        cell = fmt::format("({};{}{}", cell, text_of(actions[i + 1]), block_suffix);
        ++i;
      }
      line += fmt::format("{}{}", line.empty() ? "" : ",", cell);
    }
    text += line + "\n";
  }
  return text;
}

Schedule schedule_from_csv(std::string_view text, std::string_view name) {
  Schedule schedule;
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (trimmed(line).empty()) continue;
    std::vector<Action>& actions = schedule.by_rank.emplace_back();
    for (const std::string& cell : split(line, ',')) add_cell(actions, trimmed(cell), name, number);
  }
  set_counts(schedule);
  require(schedule.stages > 0, fmt::format("{} holds no action", name),
          "write a line for every rank, for example 0F0,0B0");
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
  Schedule schedule = schedule_from_csv(read_text(path, most_bytes), path);
  number_from_zero(schedule);
  return schedule;
}

}  // namespace lockstep
