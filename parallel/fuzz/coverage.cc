#include "parallel/fuzz/coverage.h"

namespace lockstep {
namespace {

// The texts that a description lists, as its option writes them: "0" of a fraction is "0.0".
std::map<std::string, std::set<std::string>> drawn_values() {
  TrainOptions options;
  std::map<std::string, std::set<std::string>> values;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      for (const std::string& text : option.drawn) {
        set_from_text(option, text);
        values[option.flag].insert(text_of(option));
      }
  return values;
}

}  // namespace

void Coverage::add(const FuzzPlan& plan) {
  TrainOptions options = plan.options;
  std::vector<Value> own;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      if (!option.drawn.empty() && group.belongs_to(options.technique) &&
          (!option.has_effect || option.has_effect(options)))
        own.emplace_back(option.flag, text_of(option));
  values_.insert(own.begin(), own.end());
  for (const Value& one : own)
    for (const Value& other : own)
      if (one.first != other.first) pairs_.emplace(one, other);
}

std::vector<Coverage::Row> Coverage::rows() const {
  const auto drawn = drawn_values();
  std::int64_t of_all = 0;
  for (const auto& [flag, texts] : drawn) of_all += std::ssize(texts);
  std::vector<Row> rows;
  for (const auto& [flag, texts] : drawn) {
    const std::int64_t own = std::ssize(texts);
    Row row{.flag = flag, .all_values = own, .all_pairs = own * (of_all - own)};
    for (const Value& value : values_)
      row.values += value.first == flag && texts.contains(value.second);
    for (const auto& [one, other] : pairs_)
      row.pairs += one.first == flag && texts.contains(one.second) && drawn.contains(other.first) &&
                   drawn.at(other.first).contains(other.second);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace lockstep
