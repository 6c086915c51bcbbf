// The known mistakes of a lab, which are its mutants. Where a submission is wrong, they run on the same
// data: the one that gives exactly what the submission gives is the cause.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "labs/grader/build.h"
#include "labs/grader/judge.h"
#include "labs/grader/lab.h"
#include "labs/grader/ranks.h"

namespace lockstep {

// What an obligation compares.
enum class Compared { results, messages };

// One case in which a submission was judged.
class JudgedCase {
 public:
  JudgedCase() = default;
  JudgedCase(const JudgedCase&) = default;
  JudgedCase& operator=(const JudgedCase&) = delete;
  virtual ~JudgedCase() = default;

  virtual WorldOptions options() const = 0;
  // Whether `run`, with these options, is as the submission's.
  virtual bool is_given_by(const WorldRun& run, Compared compared) const = 0;
  // How many numbers or messages of the submission are wrong. Nothing if its run cannot be compared.
  virtual std::optional<std::int64_t> wrong_numbers(Compared compared) const = 0;

  // What the mistake with this number gives. Runs it the first time.
  const WorldRun& given_by(std::size_t mistake, Runner& runner) const;

 private:
  mutable std::map<std::size_t, WorldRun> given_;
};

// One whose results and messages are compared.
class ComparedCase : public JudgedCase {
 public:
  bool is_given_by(const WorldRun& run, Compared compared) const final;
  std::optional<std::int64_t> wrong_numbers(Compared compared) const final;

 private:
  // What the submission and our solution did.
  virtual const WorldRun& own() const = 0;
  virtual const WorldRun& right() const = 0;
  // How many results of two runs that have ended differ, or how many messages of any two runs.
  virtual std::int64_t differences(const WorldRun& a, const WorldRun& b,
                                   Compared compared) const = 0;
};

// Returns our solution with a mistake, or written in another way, by the names of its files. Throws
// Error (bad_input) if it lacks a text to replace.
std::map<std::string, std::string> solution_with(const Lab& lab, const Replacements& replacements,
                                                 const std::string& source_folder);

// Compiles each mistake when it is first needed, and keeps it, where the build's folder can be written
// also for later grades. Any thread may ask.
class KnownMistakes {
 public:
  // All mutants that explain themselves; otherwise, of those, the ones at `chosen`.
  KnownMistakes(const Lab& lab, std::string source_folder);
  KnownMistakes(const Lab& lab, std::string source_folder, std::set<std::size_t> chosen);

  // Returns the names of the mistakes that give exactly what the submission gave, in all cases of the
  // obligation. Considers those that fail it, and nothing that the submission does not fail. One that
  // gives the results and the messages of these cases goes before those that give one of them. Empty
  // if the obligation is met, or if too little is wrong to tell. A mistake that does not compile here is
  // no reason to refuse a grade: it explains nothing.
  std::vector<std::string> explaining(const std::string& obligation, const Verdicts& verdicts,
                                      std::span<const JudgedCase* const> cases, Compared compared);

  // The library of the lab's mutant `i`. Throws Error (wrong_result) if it does not compile.
  const std::string& library(std::size_t i);

 private:
  struct Built {
    WorkFolder work;
    std::string library, errors;
  };

  std::vector<std::size_t> considered(const std::string& obligation,
                                      const Verdicts& verdicts) const;
  void build(const std::vector<std::size_t>& mutants);
  void build(std::size_t i, Built& built) const;
  bool is_built(std::size_t i);

  const Lab& lab_;
  std::string source_folder_;
  std::set<std::size_t> chosen_;
  std::mutex building_;
  std::map<std::size_t, Built> built_;
};

// "; a known mistake gives exactly this: NAME"; empty if there are no names.
std::string in_words(const std::vector<std::string>& mistakes);

}  // namespace lockstep
