#include "labs/grader/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/regions.h"

namespace lockstep {
namespace {

// With fewer wrong numbers, equal ones would be no proof.
constexpr std::int64_t fewest_wrong = 2;
// More than these explain nothing.
constexpr std::size_t most_names = 3;

std::set<std::size_t> explaining_themselves(const Lab& lab) {
  std::set<std::size_t> mutants;
  for (std::size_t i = 0; i < lab.mutants.size(); ++i)
    if (lab.mutants[i].cause == lab.mutants[i].name) mutants.insert(i);
  return mutants;
}

}  // namespace

// After a fault only a deadlock says enough: who waits for whom, and what was sent until then.
bool ComparedCase::is_given_by(const WorldRun& run, Compared compared) const {
  if (own().fault.empty() && run.fault.empty()) return differences(own(), run, compared) == 0;
  return own().is_deadlock && own().fault == run.fault &&
         differences(own(), run, Compared::messages) == 0;
}

std::optional<std::int64_t> ComparedCase::wrong_numbers(Compared compared) const {
  if (own().fault.empty()) return differences(own(), right(), compared);
  return own().is_deadlock ? std::optional(fewest_wrong) : std::nullopt;
}

std::map<std::string, std::string> solution_with(const Lab& lab, const Replacements& replacements,
                                                 const std::string& source_folder) {
  std::map<std::string, std::string> texts;
  for (const LabFile& file : lab.files)
    texts[file.name] =
        lab.is_form() ? placements_form(lab, source_folder, true) : cut(file, source_folder, true);
  for (const auto& [old_text, new_text] : replacements) {
    const auto found = std::ranges::find_if(
        texts, [&](const auto& file) { return file.second.find(old_text) != std::string::npos; });
    require(found != texts.end(), fmt::format("the solution has no '{}'", old_text));
    found->second.replace(found->second.find(old_text), old_text.size(), new_text);
  }
  return texts;
}

KnownMistakes::KnownMistakes(const Lab& lab, std::string source_folder)
    : KnownMistakes(lab, std::move(source_folder), explaining_themselves(lab)) {}

KnownMistakes::KnownMistakes(const Lab& lab, std::string source_folder,
                             std::set<std::size_t> chosen)
    : lab_(lab), source_folder_(std::move(source_folder)), chosen_(std::move(chosen)) {
  std::set<std::size_t> known = explaining_themselves(lab);
  std::erase_if(chosen_, [&](std::size_t i) { return !known.contains(i); });
}

std::vector<std::string> KnownMistakes::explaining(const std::string& obligation,
                                                   const Verdicts& verdicts,
                                                   std::span<const JudgedCase* const> cases,
                                                   Compared compared) {
  if (verdicts.at(obligation).empty()) return {};
  std::int64_t wrong = 0;
  for (const JudgedCase* judged : cases) {
    const std::optional<std::int64_t> numbers = judged->wrong_numbers(compared);
    if (!numbers) return {};
    wrong += *numbers;
  }
  if (wrong < fewest_wrong) return {};
  const std::vector<std::size_t> mutants = considered(obligation, verdicts);
  build(mutants);
  const Compared other = compared == Compared::results ? Compared::messages : Compared::results;
  std::vector<std::string> explaining_this, explaining_all;
  for (const std::size_t i : mutants) {
    if (!is_built(i)) continue;
    Runner runner(lab_, library(i));
    bool is_cause = true, explains_all = true;
    for (const JudgedCase* judged : cases) {
      const WorldRun run = runner.run(judged->options());
      is_cause = judged->is_given_by(run, compared);
      explains_all = explains_all && judged->is_given_by(run, other);
      if (!is_cause) break;
    }
    if (!is_cause) continue;
    explaining_this.push_back(lab_.mutants[i].name);
    if (explains_all) explaining_all.push_back(lab_.mutants[i].name);
  }
  std::vector<std::string>& names = explaining_all.empty() ? explaining_this : explaining_all;
  if (names.size() > most_names) names.clear();
  return std::move(names);
}

bool KnownMistakes::is_built(std::size_t i) {
  const std::scoped_lock lock(building_);
  return !built_.at(i).library.empty();
}

const std::string& KnownMistakes::library(std::size_t i) {
  build({i});
  const std::scoped_lock lock(building_);
  const Built& built = built_.at(i);
  if (built.library.empty())
    throw Error(ErrorKind::wrong_result, fmt::format("mutant '{}' does not compile: {}",
                                                     lab_.mutants[i].name, built.errors));
  return built.library;
}

std::vector<std::size_t> KnownMistakes::considered(const std::string& obligation,
                                                   const Verdicts& verdicts) const {
  std::vector<std::size_t> mutants;
  for (const std::size_t i : chosen_) {
    const std::vector<std::string>& fails = lab_.mutants[i].fails;
    if (std::ranges::count(fails, obligation) > 0 &&
        std::ranges::all_of(fails, [&](const auto& name) { return !verdicts.at(name).empty(); }))
      mutants.push_back(i);
  }
  return mutants;
}

void KnownMistakes::build(const std::vector<std::size_t>& mutants) {
  const std::scoped_lock lock(building_);
  std::vector<std::pair<std::size_t, Built*>> missing;
  for (const std::size_t i : mutants)
    if (!built_.contains(i)) missing.emplace_back(i, &built_[i]);
  std::atomic<std::size_t> next = 0;
  const auto compile = [&] {
    for (std::size_t k = next++; k < missing.size(); k = next++) {
      Built& built = *missing[k].second;
      try {
        const WorkFolder submission;
        for (const auto& [name, text] :
             solution_with(lab_, lab_.mutants[missing[k].first].replacements, source_folder_))
          write_file(submission.path() + "/" + name, text);
        BuiltUnit unit = build_unit(lab_, submission.path(), source_folder_, built.work);
        built.library = std::move(unit.library), built.errors = std::move(unit.errors);
      } catch (const Error& error) {
        built.errors = error.what();
      }
    }
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min(cores, missing.size()); ++i) helpers.emplace_back(compile);
  compile();
}

std::string in_words(const std::vector<std::string>& mistakes) {
  if (mistakes.empty()) return "";
  return fmt::format("; {} exactly this: {}",
                     mistakes.size() == 1 ? "a known mistake gives" : "known mistakes that give",
                     fmt::join(mistakes, "; "));
}

}  // namespace lockstep
