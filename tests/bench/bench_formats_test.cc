// Formats of results that no quick run shows: slow ranks, hostile names, repetitions.
#include "bench/results/bench_formats.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

nlohmann::ordered_json entry_of(const std::string& name, double busbw, int repetition) {
  return {{"name", name},      {"run_name", name},       {"run_type", "iteration"},
          {"bytes", 1024},     {"in_place", 0},          {"repetition_index", repetition},
          {"wrong", 0},        {"real_time", 7.0},       {"p50_us", 7.0},
          {"time_unit", "us"}, {"busbw_gb_per_s", busbw}};
}

nlohmann::ordered_json file_of(nlohmann::ordered_json entries) {
  return {{"context",
           {{"lockstep.command", "lockstep bench"},
            {"lockstep.environment", R"({"time": "2026-11-27T20:00:00Z", "host": "a"})"}}},
          {"benchmarks", std::move(entries)}};
}

constexpr const char* ring = "all_reduce/ring/threads/ranks:3/bytes:1024/in_place:0/iterations:4";

TEST(BenchFormats, SlowRanksFailACaseAndAreCounted) {
  auto file = file_of({entry_of(ring, 1, 0)});
  file["slow_ranks"] = {
      {"compared", 3},
      {"ranks",
       {{{"rank", 2}, {"host", "b"}, {"device", "cuda:1"}, {"own", 0.3}, {"median", 0.1}}}},
      {"explained_share", 0.9},
      {"is_cause", true}};
  const std::string junit = bench_junit(file), metrics = bench_prometheus(file);
  EXPECT_THAT(junit, HasSubstr(R"(tests="2" failures="1")"));
  EXPECT_THAT(junit, HasSubstr(R"(name="no rank is slow" time="0.000000000"><failure type="SLOW" )"
                               R"(message="rank 2 (host b, device cuda:1) with 3.00 times)"));
  EXPECT_THAT(metrics, HasSubstr("lockstep_slow_ranks{operation=\"all_reduce\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("_explained_ratio{operation=\"all_reduce\"} 0.9\n"));
  file["slow_ranks"]["ranks"] = nlohmann::ordered_json::array();
  EXPECT_THAT(bench_junit(file), HasSubstr(R"(tests="2" failures="0")"));
}

TEST(BenchFormats, SlowLinksFailACaseAndAreCounted) {
  auto file = file_of({entry_of("pairs/latency/threads/ranks:3/bytes:8/from:0/to:1", 1, 0)});
  file["slow_links"] = {{{"part", "unit"}, {"text", "host b is slow"}}};
  EXPECT_THAT(bench_junit(file), HasSubstr(R"(<failure type="SLOW" message="host b is slow")"));
  EXPECT_THAT(bench_prometheus(file), HasSubstr("lockstep_slow_links 1\n"));
  file["slow_links"] = nlohmann::ordered_json::array();
  EXPECT_THAT(bench_junit(file), HasSubstr(R"(tests="2" failures="0")"));
  EXPECT_THAT(bench_prometheus(file), HasSubstr("lockstep_slow_links 0\n"));
}

TEST(BenchFormats, EveryHostOfABurnInIsACase) {
  auto file = file_of(nlohmann::ordered_json::array());
  file["hosts"] = {{{"host", "a"}, {"verdict", "pass"}}, {{"host", "b"}, {"verdict", "fail"}}};
  file["findings"] = {
      {{"code", 501}, {"verdict", "fail"}, {"hosts", {"b"}}, {"text", "other bits"}}};
  const std::string junit = bench_junit(file), metrics = bench_prometheus(file);
  EXPECT_THAT(junit, HasSubstr(R"(tests="3" failures="1")"));
  EXPECT_THAT(junit, HasSubstr(R"(<failure type="fail" message="501 other bits")"));
  EXPECT_THAT(metrics, HasSubstr("lockstep_burn_in_verdict{host=\"a\"} 0\n"));
  EXPECT_THAT(metrics, HasSubstr("lockstep_burn_in_verdict{host=\"b\"} 2\n"));
}

TEST(BenchFormats, AMetricIsTheMedianOfItsRepetitions) {
  const auto file = file_of({entry_of(ring, 1, 0), entry_of(ring, 9, 1), entry_of(ring, 3, 2)});
  EXPECT_THAT(bench_prometheus(file), HasSubstr("bytes=\"1024\"} 3000000000\n"));
  EXPECT_THAT(bench_prometheus(file),
              HasSubstr("timestamp_seconds{operation=\"all_reduce\"} 1795809600\n"));
  EXPECT_THAT(bench_junit(file), HasSubstr(R"(tests="1")"));
}

TEST(BenchFormats, NamesMayHoldAnything) {
  const auto file = file_of({entry_of("all_reduce/\"a,\\\n<&\x1b/threads/ranks:3/bytes:8", 1, 0)});
  EXPECT_THAT(bench_csv(file), HasSubstr("all_reduce,\"\"\"a,"));
  EXPECT_THAT(bench_csv(file), Not(HasSubstr("\x1b")));
  EXPECT_THAT(bench_prometheus(file), HasSubstr(R"(algorithm="\"a,\\)"));
  EXPECT_THAT(bench_prometheus(file), Not(HasSubstr("\x1b")));
  EXPECT_THAT(bench_junit(file), HasSubstr("&lt;&amp;"));
}

}  // namespace
}  // namespace lockstep
