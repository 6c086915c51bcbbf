#include "cli/lessons/scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <regex>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse_scene(const std::string& what) {
  throw Error(ErrorKind::bad_input, "a comment 'scene': " + what,
              {.hint = "lessons/README.md describes the form"});
}

struct SceneSpan {
  std::string name, category;
  int rank = 0;
  double begin = 0, end = 0;
  std::int64_t bytes = 0;
};

// The finished spans and the messages of a trace, in microseconds.
class SceneTrace {
 public:
  explicit SceneTrace(const nlohmann::json& trace) {
    std::map<std::string, SceneSpan> sent;
    for (const auto& event : trace.at("traceEvents")) {
      const std::string phase = event.value("ph", "");
      const double at = event.value("ts", 0.0);
      SceneSpan span{.name = event.value("name", ""),
                     .category = event.value("cat", ""),
                     .rank = event.value("pid", 0),
                     .begin = at,
                     .end = at + event.value("dur", 0.0)};
      if (event.contains("args")) span.bytes = event["args"].value("bytes", std::int64_t{0});
      if (phase == "X") spans_.push_back(span);
      if (phase == "s") sent[event.at("id")] = span;
      if (phase == "f") arrivals_.emplace_back(event.at("id").get<std::string>(), span);
    }
    for (const auto& [id, arrival] : arrivals_)
      if (const auto found = sent.find(id); found != sent.end())
        messages_.push_back({found->second, arrival});
    std::ranges::stable_sort(spans_, {}, &SceneSpan::begin);
  }

  const std::vector<SceneSpan>& spans() const { return spans_; }
  const std::vector<std::pair<SceneSpan, SceneSpan>>& messages() const { return messages_; }

  // The time of the last span of this name on each rank: (first begin, last end).
  std::pair<double, double> last(const std::string& name) const {
    std::map<int, SceneSpan> by_rank;
    for (const SceneSpan& span : spans_)
      if (span.name == name) by_rank[span.rank] = span;
    if (by_rank.empty()) refuse_scene(fmt::format("the trace has no span '{}'", name));
    double begin = std::numeric_limits<double>::max(), end = 0;
    for (const auto& [rank, span] : by_rank) {
      begin = std::min(begin, span.begin);
      end = std::max(end, span.end);
    }
    return {begin, end};
  }

  std::string last_step() const {
    std::string name;
    for (const SceneSpan& span : spans_)
      if (span.category == "step") name = span.name;
    if (name.empty()) refuse_scene("the trace has no training step");
    return name;
  }

 private:
  std::vector<SceneSpan> spans_;
  std::vector<std::pair<std::string, SceneSpan>> arrivals_;
  std::vector<std::pair<SceneSpan, SceneSpan>> messages_;
};

// Messages of the last call of `call`, or of the last step.
Json messages_scene(const SceneTrace& trace, const std::string& call) {
  constexpr std::size_t most_messages = 2000;
  const auto [begin, end] = trace.last(call.empty() ? trace.last_step() : call);
  int ranks = 0;
  Json messages = Json::array();
  for (const auto& [sent, arrival] : trace.messages())
    if (sent.begin >= begin && sent.begin < end && sent.bytes > 0) {
      ranks = std::max({ranks, sent.rank + 1, arrival.rank + 1});
      messages.push_back(
          {sent.rank, arrival.rank, sent.begin - begin, arrival.end - begin, sent.bytes});
    }
  if (messages.empty() || messages.size() > most_messages)
    refuse_scene(fmt::format("{} messages; use 1 to {}", messages.size(), most_messages));
  return {{"ranks", ranks}, {"end", end - begin}, {"messages", messages}};
}

// Passes of `lockstep schedule --json`, or of the last step of a trace: "1F0" is stage, pass and
// micro-batch.
Json passes_scene(const nlohmann::json& file) {
  static const std::regex action("([0-9]+)([FB])([0-9]+)");
  Json passes = Json::array();
  double last_end = 0;
  int ranks = 0;
  const auto add = [&](int rank, const std::string& pass, int micro_batch, double begin,
                       double end) {
    passes.push_back({rank, pass, micro_batch, begin, end});
    last_end = std::max(last_end, end);
    ranks = std::max(ranks, rank + 1);
  };
  if (file.contains("traceEvents")) {
    const SceneTrace trace(file);
    const auto [begin, end] = trace.last(trace.last_step());
    std::smatch found;
    for (const SceneSpan& span : trace.spans())
      if (span.begin >= begin && span.end <= end && std::regex_match(span.name, found, action))
        add(span.rank, found[2], std::stoi(found[3]), span.begin - begin, span.end - begin);
  } else {
    for (const auto& rank : file.at("ranks"))
      for (const auto& one : rank.at("actions"))
        add(rank.at("rank"), one.at("pass"), one.at("micro_batch"), one.at("begin"), one.at("end"));
  }
  if (passes.empty()) refuse_scene("the file has no passes");
  return {{"ranks", ranks}, {"end", last_end}, {"passes", passes}};
}

// When units are gathered, freed and reduced in the last step: the n-th "AG3" belongs to the n-th
// all-gather of the rank's communication stream, and so do reductions.
Json shards_scene(const SceneTrace& trace) {
  static const std::regex unit("(AG|RS|free|F|B)([0-9]+)");
  const auto [begin, end] = trace.last(trace.last_step());
  std::map<int, std::map<std::string, std::vector<SceneSpan>>> asked, done;  // by rank and kind
  Json events = Json::array();
  int ranks = 0, units = 0;
  std::smatch found;
  for (const SceneSpan& span : trace.spans()) {
    if (span.begin < begin || span.end > end) continue;
    ranks = std::max(ranks, span.rank + 1);
    const std::string kind = span.name.substr(0, span.name.find('/'));
    if (span.category == "communication" && (kind == "all_gather" || kind == "reduce_scatter"))
      done[span.rank][kind == "all_gather" ? "AG" : "RS"].push_back(span);
    else if (span.name.starts_with("AG") || span.name.starts_with("RS"))
      asked[span.rank][span.name.substr(0, 2)].push_back(span);
    else if (span.category == "unit" && std::regex_match(span.name, found, unit))
      events.push_back(
          {span.rank, found[1].str(), std::stoi(found[2]), span.begin - begin, span.end - begin});
  }
  for (const auto& [rank, kinds] : asked)
    for (const auto& [kind, spans] : kinds)
      for (std::size_t i = 0; i < spans.size() && i < done[rank][kind].size(); ++i)
        if (std::regex_match(spans[i].name, found, unit)) {
          const SceneSpan& span = done[rank][kind][i];
          events.push_back({rank, kind, std::stoi(found[2]), span.begin - begin, span.end - begin});
        }
  for (const Json& event : events) units = std::max(units, event[2].get<int>() + 1);
  if (units == 0) refuse_scene("the trace gathers no units");
  return {{"ranks", ranks}, {"units", units}, {"end", end - begin}, {"events", events}};
}

// What `lockstep contributions --json` recorded: whose data each chunk of each rank holds.
Json held_scene(const nlohmann::json& file) {
  Json ranks = Json::array();
  for (const auto& rank : file.at("ranks")) ranks.push_back(Json(rank.at("held")));
  return {{"ranks", ranks.size()},
          {"end", file.at("ranks").at(0).at("held").size() - 1},
          {"operation", file.at("operation")},
          {"held", ranks}};
}

}  // namespace

Json scene_of(const nlohmann::json& fields, const std::string& folder) {
  for (const auto& [field, value] : fields.items())
    if ((field != "kind" && field != "of" && field != "call") || !value.is_string())
      refuse_scene(fmt::format("unknown field '{}', or not a text", field));
  const std::string kind = fields.value("kind", ""), name = fields.value("of", "");
  constexpr std::int64_t most_bytes = 64 << 20;
  if (name.empty() || name.find('/') != std::string::npos)
    refuse_scene("'of' must name a file that the lesson's commands write");
  const nlohmann::json file = parse_json(read_text(folder + "/" + name, most_bytes), name);
  Json scene;
  try {
    if (kind == "messages")
      scene = messages_scene(SceneTrace(file), fields.value("call", ""));
    else if (kind == "passes")
      scene = passes_scene(file);
    else if (kind == "shards")
      scene = shards_scene(SceneTrace(file));
    else if (kind == "held")
      scene = held_scene(file);
    else
      refuse_scene(fmt::format("no kind '{}'; use messages, passes, shards or held", kind));
  } catch (const nlohmann::json::exception& error) {
    refuse_scene(fmt::format("{} is not a file for the kind '{}'", name, kind));
  }
  scene["kind"] = kind;
  return scene;
}

std::string scene_html(const nlohmann::json& fields, const std::string& folder) {
  return fmt::format(
      "<figure class=\"scene\" data-scene=\"{}\"><figcaption>This animation needs "
      "JavaScript.</figcaption></figure>\n",
      html_text(json_line(scene_of(fields, folder))));
}

}  // namespace lockstep
