// The verdicts on the rows of a history: which slowdowns count, from which base.
#include "bench/results/trend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// A history with one row of these times, one a night from 2026-11-01, in which few percent are
// noise.
History history_of(const std::vector<double>& times) {
  History history;
  for (std::size_t night = 0; night < times.size(); ++night) {
    Measurements measured{.path = fmt::format("{}.json", night),
                          .schema = "lockstep.bench/1",
                          .rows = {},
                          .in_turn = {},
                          .settings = {},
                          .environment = {},
                          .options = {},
                          .wrong = {}};
    measured.rows["row"].repetitions = {times[night] *
                                        (1 + 0.004 * static_cast<double>(night % 3))};
    measured.environment["host"] = night < 10 ? "a" : "b";
    history.nights.push_back(
        {.time = fmt::format("2026-11-{:02}T02:00:00Z", night + 1), .measured = measured});
  }
  return history;
}

// Ten nights at each of these levels.
std::vector<double> ten_each(const std::vector<double>& levels) {
  std::vector<double> times;
  for (const double level : levels) times.insert(times.end(), 10, level);
  return times;
}

RowTrend judged(const std::vector<double>& times, const std::string& base = "") {
  return trends_of(history_of(times), {.limits = {}, .base = base}).rows.at(0);
}

TEST(Trend, ASlowdownCountsUntilTheRowIsAsFastAsBefore) {
  const RowTrend slower = judged(ten_each({100, 110}));
  EXPECT_TRUE(slower.is_slower);
  ASSERT_EQ(slower.changes.size(), 1U);
  EXPECT_EQ(slower.changes[0].night, 10U);
  EXPECT_EQ(slower.changes[0].previous, 9U);
  EXPECT_NEAR(slower.change(), 0.1, 0.01);
  EXPECT_FALSE(judged(ten_each({100, 90})).is_slower) << "faster";
  EXPECT_FALSE(judged(ten_each({100, 110, 100})).is_slower) << "mended";
  EXPECT_TRUE(judged(ten_each({100, 121, 110})).is_slower) << "mended by half";
  EXPECT_TRUE(judged(ten_each({100, 80, 95})).is_slower) << "faster than at first, but was better";
  EXPECT_FALSE(judged(ten_each({100, 100, 100})).is_slower);
}

TEST(Trend, TheBaseWindowAcceptsWhatItHolds) {
  const auto times = ten_each({100, 110});
  EXPECT_FALSE(judged(times, "2026-11-15..2026-11-20").is_slower);
  const RowTrend accepted = judged(times, "2026-11-12..2026-11-13");
  EXPECT_TRUE(accepted.changes.at(0).is_accepted);
  EXPECT_NEAR(accepted.change(), 0, 0.01);
  EXPECT_TRUE(judged(times, "2026-11-01..2026-11-05").is_slower);
  EXPECT_TRUE(judged(ten_each({100, 110, 121}), "2026-11-12..2026-11-20").is_slower)
      << "slower since";
  for (const char* const base : {"2026-11-01", "..", "2026-11-01..", "..2026-11-05",
                                 "2027-01-01..2027-02-01", "2026-11-05..2026-11-01"})
    EXPECT_THROW(judged(times, base), Error) << base;
}

TEST(Trend, ADriftIsComparedWithItsFirstNights) {
  std::vector<double> times;
  for (int night = 0; night < 30; ++night) times.push_back(100 + 0.6 * night);
  const RowTrend drifting = judged(times);
  ASSERT_TRUE(drifting.drift.has_value());
  EXPECT_TRUE(drifting.is_slower);
  EXPECT_FALSE(judged(times, "2026-11-27..2026-11-30").is_slower) << "accepted";
  std::ranges::reverse(times);
  EXPECT_FALSE(judged(times).is_slower) << "faster";
}

TEST(Trend, NightsWithoutTheRowOrWithAWrongResultHaveNoTime) {
  History history = history_of(ten_each({100, 110}));
  history.nights[3].measured.rows.clear();
  history.nights[3].measured.rows["another"].repetitions = {1};
  history.nights[12].measured.wrong["row"] = "3 elements are wrong";
  const Trends trends = trends_of(history, {});
  ASSERT_EQ(trends.rows.size(), 2U);
  const RowTrend& row = trends.rows[1];
  EXPECT_EQ(row.name, "row");
  EXPECT_EQ(row.points.size(), 18U);
  EXPECT_EQ(row.changes.at(0).night, 10U) << "in nights, not in points";
  EXPECT_TRUE(trends.wrong.empty()) << "only the last night decides";
  history.nights.back().measured.wrong["row"] = "3 elements are wrong";
  EXPECT_EQ(trends_of(history, {}).wrong.size(), 1U);
}

TEST(Trend, TheTextNamesTheNightTheRowAndTheHost) {
  const History history = history_of(ten_each({100, 110}));
  const TrendOptions options;
  const std::string text = trend_text(history, trends_of(history, options), options);
  for (const char* const part :
       {"20 nights, 2026-11-01 to 2026-11-20, 1 row\n", "  0000000000|5555555555\n",
        "  2026-11-11 to 2026-11-20    10 nights ", "SLOWER\n",
        "2026-11-11: 1 slower, 0 faster, of 1 row: +10.0 % to +10.0 %; row\n",
        "  2026-11-11: host: a before, b now\n", "1 slower, 0 faster, 0 otherwise, of 1 row\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Trend, TellsWhatAutoChose) {
  History history = history_of(ten_each({100, 110}));
  for (std::size_t night = 0; night < history.nights.size(); ++night)
    history.nights[night].measured.rows["row"].chosen = night < 10 ? "ring" : "direct";
  const std::string text = trend_text(history, trends_of(history, {}), {});
  EXPECT_NE(text.find("SLOWER; auto chose ring before, direct now\n"), std::string::npos) << text;
}

TEST(Trend, AWarningTellsThatNightsAreTooFew) {
  const auto text = [](const History& history) {
    return trend_text(history, trends_of(history, {}), {});
  };
  History history = history_of(ten_each({100}));
  EXPECT_EQ(text(history).find("# warning"), std::string::npos);
  history.nights.resize(7);
  EXPECT_NE(text(history).find("# warning: no change can be found in fewer than 8 nights\n"),
            std::string::npos);
}

TEST(Trend, VirtualTimesChangeByAnyAmount) {
  History history = history_of(ten_each({100, 100.001}));
  for (Night& night : history.nights) {
    night.measured.is_exact = true;
    night.measured.rows["row"].repetitions = {night.measured.environment["host"] == "a" ? 100
                                                                                        : 100.001};
  }
  const Trends trends = trends_of(history, {});
  EXPECT_EQ(trends.rows[0].changes.size(), 1U);
  EXPECT_TRUE(trends.rows[0].is_slower);
}

}  // namespace
}  // namespace lockstep
