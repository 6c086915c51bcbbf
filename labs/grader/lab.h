// A lab: which parts of the shipped sources are its task, its obligations, and the mutants that
// prove that the grader enforces them. Read from lab.json and instead.txt of labs/NN_name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// The limit for a file of a lab or a submission.
inline constexpr std::int64_t most_file_bytes = 1 << 20;

struct Obligation {
  std::string name;
  int points = 0;
  std::vector<std::string> hints;  // three, from a question to nearly the answer
};

// A file of a submission: regions of a shipped source.
struct LabFile {
  std::string name, source;
  std::vector<std::string> regions;
  // What a skeleton has in place of a region's solutions, counted from 1. Nothing for the others.
  std::map<std::pair<std::string, int>, std::string> instead;
};

// What becomes what in the text of our solution, each in the first place where it is found. Texts that
// lie in several files are replaced in the first of them by name.
using Replacements = std::vector<std::pair<std::string, std::string>>;

// A wrong solution.
struct LabMutant {
  std::string name;
  Replacements replacements;
  std::vector<std::string> fails;  // exactly these obligations
  // The mutant whose name a grade gives as the cause: this one, or the same mistake written in another
  // way.
  std::string cause;
};

// A right solution that is written in another way.
struct LabVariant {
  std::string name;
  Replacements replacements;
};

// The problems of a lab whose code answers them: numbers, each with a name. If it has ranks, the first
// is how many. The obligations bytes, messages and order are judged by the problems of all others but
// memory, which has its own, and hidden.
struct LabProblems {
  using Problem = std::vector<std::int64_t>;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::vector<Problem>>> by_obligation;
  // For the obligation "hidden": how many problems, and the range from which each number is drawn.
  // Every kind of problem has a row, and the kinds alternate, so no secret omits one.
  int hidden = 0;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> drawn;
};

// A plan whose parameters a lab asks for; the name is that of its obligation.
struct LabPlan {
  std::string name, flags, json;
};

// A leaderboard: the fastest plan of a training on a stated cluster.
struct LabRace {
  std::string file;               // of the submission
  std::string plan;               // the plan to begin with, as JSON: schema lockstep.plan/1
  std::vector<std::string> free;  // options of it that students may change or add
  std::string link;
  double flops_per_s = 0, memory_bytes_per_s = 0;  // of each rank's processor
  std::int64_t memory_limit = 0;                   // bytes of each rank
};

struct Lab {
  int number = 0;
  std::string name, title, operation;
  int minutes = 0, lesson = 0;
  std::vector<LabFile> files;
  std::vector<Obligation> obligations;
  std::vector<LabMutant> mutants;
  std::vector<LabVariant> variants;
  LabProblems problems;
  std::vector<LabPlan> plans;
  std::optional<LabRace> race;
  std::string folder;  // of lab.json, instead.txt, task.md, instructor.md and functions.cc

  int points() const;
  // Its submission is a form that is filled in; otherwise it is code.
  bool is_form() const { return operation == "placements"; }
  // Its code calls all of Lockstep, so its ranks are processes without its solution.
  bool has_own_process() const { return operation.starts_with("answer_"); }
};

// All labs below `folder`, by number. Throws Error (bad_input) naming the file that cannot be read.
std::vector<Lab> read_labs(const std::string& folder);
// Throws Error (bad_input) listing the numbers there are.
const Lab& find_lab(const std::vector<Lab>& labs, int number);

}  // namespace lockstep
