#include "labs/grader/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "collectives/base/checksum.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/regions.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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

void copy_library(const fs::path& from, const fs::path& to, std::error_code& error) {
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (!error) fs::permissions(to, fs::perms::others_read, fs::perm_options::add, error);
}

// Where the library of mutant `i` is kept for later grades, next to the headers that it is compiled
// with. Its name changes with all that it is compiled from.
fs::path kept_library(const Lab& lab, std::size_t i,
                      const std::map<std::string, std::string>& texts,
                      const std::string& source_folder) {
  std::string all = read_text(lab.folder + "/functions.cc", most_file_bytes);
  for (const auto& [name, text] : texts) all += name + text;
  const fs::path share = fs::path(source_folder).parent_path();
  for (const char* made : {"lab_headers/copied", "lab_headers/labs/functions.h.gch"}) {
    std::error_code missing;
    all +=
        fmt::format(" {}", fs::last_write_time(share / made, missing).time_since_epoch().count());
  }
  return share / "lab_mistakes" / fmt::format("{}-{}-{:016x}.so", lab.number, i, checksum(all));
}

// Replaces what was kept of the same mutant. Where that is not possible, the next grade compiles again.
void keep(const std::string& library, const fs::path& kept, const std::string& unique) {
  std::error_code ignored;
  fs::create_directories(kept.parent_path(), ignored);
  const std::string name = kept.filename().string(),
                    of_mutant = name.substr(0, name.rfind('-') + 1);
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(kept.parent_path(), ignored))
    if (entry.path().filename().string().starts_with(of_mutant)) old.push_back(entry.path());
  const fs::path part = kept.parent_path() / fs::path(unique).filename();
  std::error_code failed;
  copy_library(library, part, failed);
  if (failed) return;
  for (const fs::path& path : old) fs::remove(path, ignored);
  fs::rename(part, kept, ignored);
}

}  // namespace

const WorldRun& JudgedCase::given_by(std::size_t mistake, Runner& runner) const {
  const auto [place, is_first] = given_.try_emplace(mistake);
  if (is_first) place->second = runner.run(options());
  return place->second;
}

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
      const WorldRun& run = judged->given_by(i, runner);
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
    for (std::size_t k = next++; k < missing.size(); k = next++)
      build(missing[k].first, *missing[k].second);
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min(cores, missing.size()); ++i) helpers.emplace_back(compile);
  compile();
}

void KnownMistakes::build(std::size_t i, Built& built) const {
  try {
    const std::map<std::string, std::string> texts =
        solution_with(lab_, lab_.mutants[i].replacements, source_folder_);
    const fs::path kept = kept_library(lab_, i, texts, source_folder_);
    const std::string own = built.work.path() + "/mistake.so";
    std::error_code missing;
    if (copy_library(kept, own, missing); !missing) {
      built.library = own;
      return;
    }
    const WorkFolder submission;
    for (const auto& [name, text] : texts) write_file(submission.path() + "/" + name, text);
    BuiltCode code = build_code(lab_, submission.path(), source_folder_, built.work);
    built.library = std::move(code.library), built.errors = std::move(code.errors);
    if (!built.library.empty()) keep(built.library, kept, built.work.path());
  } catch (const Error& error) {
    built.errors = error.what();
  }
}

std::string in_words(const std::vector<std::string>& mistakes) {
  if (mistakes.empty()) return "";
  return fmt::format("; {} exactly this: {}",
                     mistakes.size() == 1 ? "a known mistake gives" : "known mistakes that give",
                     fmt::join(mistakes, "; "));
}

}  // namespace lockstep
