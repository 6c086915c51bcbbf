// JUnit XML, as Jenkins, GitLab and other test runners read it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct JunitCase {
  enum class Outcome { passed, failed, skipped };

  std::string group, name;
  double seconds = 0;
  Outcome outcome = Outcome::passed;
  std::string type, message;  // of a failure; a skipped case has only a message
};

struct JunitSuite {
  std::string name;
  std::vector<std::pair<std::string, std::string>> properties;
  std::vector<JunitCase> cases;
};

std::string junit_text(std::string_view program, const std::vector<JunitSuite>& suites);

}  // namespace lockstep
