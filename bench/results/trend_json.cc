// A history as a file, which plots/ draws.
#include <nlohmann/json.hpp>

#include "bench/results/environment.h"
#include "bench/results/trend.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json nights_of(const History& history) {
  const std::vector<std::string> labels = history.labels();
  Json nights = Json::array();
  for (std::size_t night = 0; night < history.nights.size(); ++night) {
    const Measurements& measured = history.nights[night].measured;
    const auto host = measured.environment.find("host");
    Json one = {{"time", history.nights[night].time},
                {"label", labels[night]},
                {"file", printable(measured.path)},
                {"host", host == measured.environment.end() ? "" : host->second},
                {"changed", Json::array()}};
    if (night > 0) one["changed"] = changed_between(history, night - 1, night, true);
    nights.push_back(std::move(one));
  }
  return nights;
}

Json json_of(const RowTrend& row) {
  Json points = Json::array(), changes = Json::array();
  for (const TrendPoint& point : row.points)
    points.push_back({{"night", point.night}, {"us", point.us}, {"outlier", point.is_outlier}});
  for (const RowChange& change : row.changes)
    changes.push_back({{"night", change.night},
                       {"previous", change.previous},
                       {"before_us", change.before},
                       {"after_us", change.after},
                       {"change", change.change()},
                       {"chance", change.chance},
                       {"chosen", change.chosen},
                       {"accepted", change.is_accepted},
                       {"open", change.is_open}});
  Json one = {{"name", row.name},
              {"level_us", row.level_us},
              {"slower", row.is_slower},
              {"points", std::move(points)},
              {"changes", std::move(changes)}};
  if (row.base_us) one["base_us"] = *row.base_us;
  if (row.drift) one["drift"] = *row.drift;
  return one;
}

}  // namespace

std::string trend_json(const History& history, const Trends& trends) {
  Json file = {{"schema", "lockstep.history/1"}, {"command", command_line()}};
  file["effect"] = history.is_exact() ? 0 : trends.effect;
  file["nights"] = nights_of(history);
  file["wrong"] = trends.wrong;
  file["rows"] = Json::array();
  for (const RowTrend& row : trends.rows) file["rows"].push_back(json_of(row));
  return json_text(file);
}

}  // namespace lockstep
