#include <nlohmann/json.hpp>

#include "bench/collectives/contributions.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// For each element how often it holds each rank's data.
ordered_json held_json(const std::vector<std::int64_t>& elements, int ranks) {
  ordered_json all = ordered_json::array();
  for (const std::int64_t element : elements) {
    ordered_json times = ordered_json::array();
    for (int source = 0; source < ranks; ++source) times.push_back(times_held(element, source));
    all.push_back(std::move(times));
  }
  return all;
}

}  // namespace

std::string contributions_json(const Contributions& run) {
  const ContributionOptions& o = run.options;
  ordered_json file = {{"schema", "lockstep.contributions/1"},
                       {"operation", o.operation},
                       {"algorithm", o.algorithm},
                       {"config", {{"ranks", o.ranks}, {"elements", o.elements}}},
                       {"ranks", ordered_json::array()},
                       {"wrong", ordered_json::array()}};
  for (int rank = 0; rank < o.ranks; ++rank) {
    ordered_json held = ordered_json::array();
    for (const HeldData& data : run.ranks[static_cast<std::size_t>(rank)]) {
      ordered_json entry = {{"first", data.first},
                            {"count", data.count},
                            {"reduces", data.reduces},
                            {"times", held_json(data.elements, o.ranks)}};
      if (data.from >= 0) entry["from"] = data.from;
      held.push_back(std::move(entry));
    }
    const auto messages = std::count_if(held.begin(), held.end(),
                                        [](const auto& entry) { return entry.contains("from"); });
    file["ranks"].push_back({{"rank", rank}, {"messages", messages}, {"held", std::move(held)}});
  }
  for (const WrongContribution& wrong : wrong_contributions(run))
    file["wrong"].push_back({{"rank", wrong.rank},
                             {"element", wrong.element},
                             {"source", wrong.source},
                             {"times", wrong.times},
                             {"wanted", wrong.wanted}});
  file["wrong_number"] = file["wrong"].size();
  return json_line(file) + "\n";
}

}  // namespace lockstep
