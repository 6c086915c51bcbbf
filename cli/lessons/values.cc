#include "cli/lessons/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::int64_t most_result_bytes = 64 << 20;

std::vector<std::string> split(const std::string& text, std::string_view separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return parts;
}

[[noreturn]] void no_value(const std::string& path) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: there is no such value", path),
              {.hint = "the lesson names a value that its runs do not write"});
}

bool is_value(const json& found, const std::string& wanted) {
  if (found.is_string()) return found.get<std::string>() == wanted;
  if (!found.is_number()) return json_line(found) == wanted;
  char* end = nullptr;
  const double number = std::strtod(wanted.c_str(), &end);
  return end != wanted.c_str() && *end == '\0' && found.get<double>() == number;
}

// The element of a list by its index, or by the values of its fields: "quantity=sent_bytes&rank=0".
const json* element(const json& list, const std::string& key) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error == std::errc() && end == key.data() + key.size())
    return index < list.size() ? &list[index] : nullptr;
  const auto found = std::ranges::find_if(list, [&](const json& item) {
    return std::ranges::all_of(split(key, "&"), [&](const std::string& pair) {
      const std::size_t sign = std::min(pair.find('='), pair.size() - 1);
      return item.is_object() && item.contains(pair.substr(0, sign)) &&
             is_value(item[pair.substr(0, sign)], pair.substr(sign + 1));
    });
  });
  return found == list.end() ? nullptr : &*found;
}

const json& at(const json& result, const std::vector<std::string>& keys, const std::string& path) {
  const json* found = &result;
  for (const std::string& key : keys) {
    if (found->is_array())
      found = element(*found, key);
    else
      found = found->is_object() && found->contains(key) ? &(*found)[key] : nullptr;
    if (found == nullptr) no_value(path);
  }
  return *found;
}

json read_result(const std::string& folder, const std::string& name) {
  return read_json(folder + "/" + name, most_result_bytes);
}

double operand(const std::string& folder, const std::string& word) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (end != word.c_str() && *end == '\0') return number;
  std::vector<std::string> keys = split(word, "/");
  const json result = read_result(folder, keys.front());
  keys.erase(keys.begin());
  const json& found = at(result, keys, word);
  if (!found.is_number()) no_value(word);
  return found.get<double>();
}

double last_cache_bytes(const json& context) {
  double largest = 0;
  for (const json& cache : context.value("caches", json::array()))
    largest = std::max(largest, cache.value("size", 0.0));
  return largest;
}

}  // namespace

std::string number_text(double value) {
  constexpr double first_of_five_digits = 9999.5;
  if (std::abs(value) < first_of_five_digits) return fmt::format("{:.4g}", value);
  std::string text = fmt::format("{:.0f}", value);
  constexpr std::ptrdiff_t group = 3;
  for (std::ptrdiff_t at = std::ssize(text) - group; at > (value < 0 ? 1 : 0); at -= group)
    text.insert(at, ",");
  return text;
}

double lesson_value(const std::string& folder, const std::string& expression) {
  const std::vector<std::string> words = split(expression, " ");
  std::string word;
  double value = 0;
  char sign = '+';
  const auto apply = [&] {
    const double next = operand(folder, word);
    value = sign == '+'   ? value + next
            : sign == '-' ? value - next
            : sign == '*' ? value * next
                          : value / next;
    word.clear();
  };
  for (const std::string& next : words) {
    if (next.size() == 1 && std::string_view("+-*/").find(next) != std::string_view::npos) {
      apply();
      sign = next[0];
    } else {
      word += (word.empty() ? "" : " ") + next;  // a label may hold a space
    }
  }
  apply();
  return value;
}

std::string path_for_run(std::string path, const std::string& run) {
  constexpr std::string_view name = "RUN";
  for (std::size_t at = 0; (at = path.find(name, at)) != std::string::npos; at += run.size())
    path.replace(at, name.size(), run);
  return path;
}

std::vector<std::string> reasons_for_residual(const std::string& folder, const std::string& path,
                                              double closed, double measured) {
  std::vector<std::string> keys = split(path, "/");
  const json result = read_result(folder, keys.front());
  const json context = result.value("context", json::object());
  const json& record = at(result, {keys.begin() + 1, keys.end() - 1}, path);
  const double ranks = record.value("ranks", 0.0), bytes = record.value("bytes", 0.0);
  const double cores = context.value("num_cpus", 0.0), cache = last_cache_bytes(context);
  // Under another clock each rank has a processor of its own.
  const bool shares_cores = context.value("lockstep.clock", "wall") == "wall" && ranks > cores;
  constexpr double short_message = 4096;
  const bool is_short = bytes / std::max(ranks, 1.0) < short_message;
  std::vector<std::string> reasons;
  if (cores > 0 && shares_cores && measured > closed)
    reasons.push_back(fmt::format(
        "too few cores: {:.0f} ranks share {:.0f} cores, so a rank also waits for a core", ranks,
        cores));
  if (bytes > 0 && is_short)
    reasons.push_back(fmt::format(
        "latency: a chunk has {:.0f} bytes, so the time is nearly all latency, and that varies "
        "most with what else this machine does",
        bytes / ranks));
  if (bytes > 0 && cache > 0 && measured > closed && 2 * bytes * ranks > cache)
    reasons.push_back(fmt::format(
        "caches: inputs and outputs of all ranks take {:.3g} MB, the last cache holds {:.3g} MB",
        2e-6 * bytes * ranks, 1e-6 * cache));
  if (bytes > 0 && measured < closed && !is_short)
    reasons.push_back(
        "caches: the model has one bandwidth for all sizes; data that fit the caches move faster");
  if (record.contains("simulated_fraction"))
    reasons.push_back(fmt::format(
        "stages differ: with the mean times of this run's passes the schedule gives {:.3f}",
        record.value("simulated_fraction", 0.0)));
  return reasons;
}

}  // namespace lockstep
