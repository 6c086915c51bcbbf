// Compares what code did with what its lab requires: right values, and messages or an order of
// actions that match the closed forms and our own solution.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "labs/grader/lab.h"

namespace lockstep {

class KnownMistakes;

struct JudgedCode {
  std::string submission, reference;  // libraries
  KnownMistakes& mistakes;            // those that may be causes
  std::uint64_t data_seed = 0;        // for the data, which are unknown in advance
  std::uint64_t hidden_seed = 0;      // for the hidden cases
};

// By the name of an obligation: the first fault, in one sentence; empty if the obligation is met.
using Verdicts = std::map<std::string, std::string>;

// What one rank did in one case, step by step, next to our solution.
struct TraceRow {
  std::string rank;
  std::vector<std::string> submission, reference;
};

struct Judgement {
  Verdicts verdicts;
  // By the name of an obligation that is not met: the known mistakes that give exactly this.
  std::map<std::string, std::vector<std::string>> causes;
  std::string traced;  // the case
  std::vector<TraceRow> trace;
};

Judgement judge_collective(const Lab& lab, const JudgedCode& code);
Judgement judge_schedules(const Lab& lab, const JudgedCode& code);
Judgement judge_answers(const Lab& lab, const JudgedCode& code);

// A form to fill in: how each parameter lies along each axis. Judged without compiling anything.
std::string placements_form(const Lab& lab, const std::string& source_folder, bool with_solution);
Judgement judge_placements(const Lab& lab, const std::string& submission,
                           const std::string& source_folder);

}  // namespace lockstep
