// What the code of a lab provides. Each lab has a file functions.cc that names the student's functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/lab.h"
#include "parallel/pipeline/schedules/lab.h"

namespace lockstep {

struct LabFunctions : LabCollectives, LabSchedules {
  // For a lab without ranks: solves a problem, and returns the answer as words. Values that may be
  // rounded differently are numbers.
  std::string (*answer)(std::span<const std::int64_t> problem) = nullptr;
  // The same on every rank of a lab with messages: returns what this rank has. Words that end with
  // a colon are names of the numbers after them. May call all of Lockstep.
  std::string (*answer_on_rank)(Communicator&, std::span<const std::int64_t> problem) = nullptr;
  // Returns this rank's answers after usual mistakes: lines of cause(), in answer.h. May be null.
  std::string (*causes)(int rank, int ranks, std::span<const std::int64_t> problem) = nullptr;
};

// The function of a library of a lab's code that returns it, and its name for the loader.
using GetLabFunctions = LabFunctions (*)();
inline constexpr const char* get_lab_functions = "lockstep_lab_functions";

// Throws Error (bad_input) with the loader's words.
LabFunctions load_functions(const std::string& library);

}  // namespace lockstep
