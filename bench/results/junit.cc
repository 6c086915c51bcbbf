#include "bench/results/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/printable.h"

namespace lockstep {
namespace {

std::string case_text(const JunitCase& one) {
  std::string text = fmt::format(R"(    <testcase classname="{}" name="{}" time="{:.9f}")",
                                 html_text(one.group), html_text(one.name), one.seconds);
  switch (one.outcome) {
    case JunitCase::Outcome::passed:
      return text + "/>\n";
    case JunitCase::Outcome::failed:
      return text + fmt::format("><failure type=\"{}\" message=\"{}\"/></testcase>\n",
                                html_text(one.type), html_text(one.message));
    case JunitCase::Outcome::skipped:
      return text + fmt::format("><skipped message=\"{}\"/></testcase>\n", html_text(one.message));
  }
  return text;
}

std::string suite_text(const JunitSuite& suite) {
  const auto count = [&](JunitCase::Outcome outcome) {
    return std::ranges::count(suite.cases, outcome, &JunitCase::outcome);
  };
  double seconds = 0;
  for (const JunitCase& one : suite.cases) seconds += one.seconds;
  std::string text = fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" "
      "time=\"{:.9f}\">\n    <properties>\n",
      html_text(suite.name), suite.cases.size(), count(JunitCase::Outcome::failed),
      count(JunitCase::Outcome::skipped), seconds);
  for (const auto& [name, value] : suite.properties)
    text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", html_text(name),
                        html_text(value));
  text += "    </properties>\n";
  for (const JunitCase& one : suite.cases) text += case_text(one);
  return text + "  </testsuite>\n";
}

}  // namespace

std::string junit_text(std::string_view program, const std::vector<JunitSuite>& suites) {
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\">\n", html_text(program));
  for (const JunitSuite& suite : suites) text += suite_text(suite);
  return text + "</testsuites>\n";
}

}  // namespace lockstep
