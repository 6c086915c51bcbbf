#include "labs/grader/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/build.h"
#include "labs/grader/export.h"
#include "labs/grader/grade.h"
#include "labs/grader/mistakes.h"
#include "labs/grader/regions.h"

namespace lockstep {
namespace {

constexpr int fewest_named = 6;

std::vector<std::string> failed(const Grade& grade) {
  std::vector<std::string> names;
  for (const EarnedPoints& each : grade.obligations)
    if (!each.wrong.empty()) names.push_back(each.obligation);
  std::ranges::sort(names);
  return names;
}

// Which mutants, and other mutants whose mistakes they are.
std::set<std::size_t> with_their_causes(const Lab& lab, const std::vector<std::size_t>& mutants) {
  std::set<std::size_t> all(mutants.begin(), mutants.end());
  for (const std::size_t i : mutants)
    for (std::size_t other = 0; other < lab.mutants.size(); ++other)
      if (lab.mutants[other].name == lab.mutants[i].cause) all.insert(other);
  return all;
}

class Checked {
 public:
  Checked(const Lab& lab, std::string source_folder, int share)
      : lab_(lab),
        source_(std::move(source_folder)),
        share_(share),
        mutants_(graded_of(lab.mutants.size())),
        mistakes_(lab, source_, with_their_causes(lab, mutants_)) {}

  LabCheck check() {
    exported();
    for (const LabMutant& mutant : lab_.mutants)
      faults_of("mutant '" + mutant.name + "'", [&] { plant(mutant.replacements); });
    for (const LabVariant& variant : lab_.variants)
      faults_of("variant '" + variant.name + "'", [&] { plant(variant.replacements); });
    for (const std::size_t i : mutants_)
      faults_of("mutant '" + lab_.mutants[i].name + "'", [&] { wrong(i); });
    for (const std::size_t i : graded_of(lab_.variants.size()))
      faults_of("variant '" + lab_.variants[i].name + "'", [&] { right(lab_.variants[i]); });
    compare_with_obligations();
    if (share_ == 1 &&
        std::ranges::count_if(result_.mutants, &GradedMutant::is_named) < fewest_named)
      fault("names fewer than {} mistakes", fewest_named);
    constexpr int all = 100;
    if (lab_.points() != all) fault("has {} points, not {}", lab_.points(), all);
    return std::move(result_);
  }

 private:
  template <typename... Arguments>
  void fault(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    result_.faults.push_back(fmt::format("lab {}: ", lab_.number) +
                             fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  template <typename Part>
  void faults_of(const std::string& what, Part part) {
    try {
      part();
    } catch (const Error& error) {
      fault("{}: {}", what, error.what());
    }
  }

  // Every share-th of so many mutants or variants.
  std::vector<std::size_t> graded_of(std::size_t count) const {
    std::vector<std::size_t> graded;
    for (std::size_t i = 0; i < count; ++i)
      if ((static_cast<int>(i) + lab_.number) % share_ == 0) graded.push_back(i);
    return graded;
  }

  // Compares the list of mutants with the obligations, whether the mutants are graded or not.
  void compare_with_obligations() {
    static const std::set<std::string> of_the_way = {"bytes", "messages", "order", "memory",
                                                     "peaks"};
    const bool has_hidden = std::ranges::count(lab_.obligations, "hidden", &Obligation::name) > 0;
    std::set<std::string> lost;
    for (const LabMutant& mutant : lab_.mutants) {
      if (mutant.fails.empty()) fault("mutant '{}' loses nothing: add a case", mutant.name);
      const bool is_wrong = std::ranges::any_of(
          mutant.fails, [&](const std::string& name) { return !of_the_way.contains(name); });
      if (has_hidden && is_wrong && std::ranges::count(mutant.fails, "hidden") == 0)
        fault("mutant '{}' has wrong results and keeps the points of hidden", mutant.name);
      lost.insert(mutant.fails.begin(), mutant.fails.end());
    }
    for (const Obligation& obligation : lab_.obligations)
      if (!lost.contains(obligation.name)) fault("no mutant loses '{}'", obligation.name);
  }

  // `compiled`: the library of what `folder` holds, if there is one.
  Grade graded(const std::string& folder, const std::string& secret = "",
               const std::string& compiled = "") {
    if (reference_.empty() && !lab_.is_form())
      reference_ = build_reference(lab_, source_, work_of_reference_);
    return grade(lab_, folder,
                 {.source_folder = source_,
                  .hint_level = 3,
                  .secret = secret,
                  .reference = reference_,
                  .compiled = compiled,
                  .mistakes = &mistakes_});
  }

  void exported() {
    const WorkFolder work;
    const std::string skeleton = work.path() + "/skeleton", solution = work.path() + "/solution";
    export_lab(lab_, source_, skeleton, false);
    export_lab(lab_, source_, solution, true);
    const Grade none = graded(skeleton);
    if (!none.compiler_errors.empty())
      fault("the skeleton does not compile: {}", none.compiler_errors);
    if (none.earned() != 0) fault("the skeleton earns {} points", none.earned());
    is_right("our solution", graded(solution));
    for (const LabFile& file : lab_.files)
      for (const std::string& line : solution_lines(file, source_))
        for (const std::string& name : {file.name, std::string("task.md")})
          if (read_text(skeleton + "/" + name, most_file_bytes).find(line) != std::string::npos)
            fault("{} of the skeleton holds a line of the solution: {}", name, line);
  }

  void is_right(const std::string& name, const Grade& grade) {
    if (!grade.compiler_errors.empty())
      fault("{} does not compile: {}", name, grade.compiler_errors);
    for (const EarnedPoints& each : grade.obligations)
      if (!each.wrong.empty()) fault("{} fails {}: {}", name, each.obligation, each.wrong);
  }

  std::map<std::string, std::string> plant(const Replacements& replacements) const {
    return solution_with(lab_, replacements, source_);
  }
  void write_planted(const Replacements& replacements, const std::string& folder) const {
    for (const auto& [name, text] : plant(replacements)) write_file(folder + "/" + name, text);
  }

  void right(const LabVariant& variant) {
    const WorkFolder work;
    write_planted(variant.replacements, work.path());
    is_right("variant '" + variant.name + "'", graded(work.path(), variant.name));
    ++result_.variants;
  }

  void wrong(std::size_t i) {
    const LabMutant& mutant = lab_.mutants[i];
    const WorkFolder work;
    write_planted(mutant.replacements, work.path());
    std::vector<std::string> expected = mutant.fails;
    std::ranges::sort(expected);
    const Grade found =
        graded(work.path(), mutant.name, lab_.is_form() ? "" : mistakes_.library(i));
    if (failed(found) != expected)
      fault("mutant '{}' fails [{}], where it should fail [{}]", mutant.name,
            fmt::join(failed(found), ", "), fmt::join(expected, ", "));
    GradedMutant& row = result_.mutants.emplace_back();
    row.name = mutant.name;
    for (const EarnedPoints& each : found.obligations) {
      const bool lists_it = std::ranges::count(each.causes, mutant.cause) > 0;
      row.loses.push_back(!each.wrong.empty());
      row.names.push_back(lists_it && each.causes.size() == 1);
      if (!each.causes.empty() && !lists_it)
        fault("mutant '{}' has the wrong cause in {}: {}", mutant.name, each.obligation,
              fmt::join(each.causes, "; "));
    }
  }

  const Lab& lab_;
  std::string source_;
  int share_;
  std::vector<std::size_t> mutants_;  // those that are graded
  KnownMistakes mistakes_;
  WorkFolder work_of_reference_;
  std::string reference_;
  LabCheck result_;
};

}  // namespace

std::string table_of(const Lab& lab, const LabCheck& check) {
  std::string text;
  for (std::size_t i = 0; i < lab.obligations.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "     " : ", ", i + 1, lab.obligations[i].name);
  text += "\n";
  const int digits = lab.obligations.size() < 10 ? 1 : 2;
  for (const GradedMutant& mutant : check.mutants) {
    text += "    ";
    for (std::size_t i = 0; i < mutant.loses.size(); ++i)
      text += fmt::format(" {:>{}}{}", mutant.loses[i] ? std::to_string(i + 1) : ".", digits,
                          mutant.names[i] ? "=" : " ");
    text += " " + mutant.name + "\n";
  }
  return text;
}

bool GradedMutant::is_named() const { return std::ranges::count(names, true) > 0; }

LabCheck check_lab(const Lab& lab, const std::string& source_folder, int share) {
  require(share >= 1, fmt::format("every {}-th mutant", share), "use a number of at least 1");
  return Checked(lab, source_folder, share).check();
}

}  // namespace lockstep
