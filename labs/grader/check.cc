#include "labs/grader/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/build.h"
#include "labs/grader/export.h"
#include "labs/grader/grade.h"
#include "labs/grader/regions.h"

namespace lockstep {
namespace {

constexpr std::size_t fewest_mutants = 5;

std::vector<std::string> failed(const Grade& grade) {
  std::vector<std::string> names;
  for (const EarnedPoints& each : grade.obligations)
    if (!each.wrong.empty()) names.push_back(each.obligation);
  std::ranges::sort(names);
  return names;
}

class Checked {
 public:
  Checked(const Lab& lab, std::string source_folder)
      : lab_(lab), source_(std::move(source_folder)) {}

  LabCheck check(int share) {
    exported();
    for (std::size_t i = 0; i < lab_.mutants.size(); ++i)
      planted(lab_.mutants[i], (static_cast<int>(i) + lab_.number) % share == 0);
    compare_with_obligations();
    if (lab_.mutants.size() < fewest_mutants)
      fault("has {} mutants, fewer than {}", lab_.mutants.size(), fewest_mutants);
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

  // Compares the list of mutants with the obligations, whether the mutants are graded or not.
  void compare_with_obligations() {
    static const std::set<std::string> of_the_way = {"bytes", "messages", "order", "memory"};
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

  Grade graded(const std::string& folder, const std::string& secret = "") {
    if (reference_.empty() && !lab_.is_form())
      reference_ = build_reference(lab_, source_, work_of_reference_);
    return grade(
        lab_, folder,
        {.source_folder = source_, .hint_level = 3, .secret = secret, .reference = reference_});
  }

  void exported() {
    const WorkFolder work;
    const std::string skeleton = work.path() + "/skeleton", solution = work.path() + "/solution";
    export_lab(lab_, source_, skeleton, false);
    export_lab(lab_, source_, solution, true);
    const Grade none = graded(skeleton), all = graded(solution);
    if (!none.compiler_errors.empty())
      fault("the skeleton does not compile: {}", none.compiler_errors);
    if (none.earned() != 0) fault("the skeleton earns {} points", none.earned());
    for (const EarnedPoints& each : all.obligations)
      if (!each.wrong.empty()) fault("our solution fails {}: {}", each.obligation, each.wrong);
    for (const LabFile& file : lab_.files)
      for (const std::string& line : solution_lines(file, source_))
        for (const std::string& name : {file.name, std::string("task.md")})
          if (read_text(skeleton + "/" + name, most_file_bytes).find(line) != std::string::npos)
            fault("{} of the skeleton holds a line of the solution: {}", name, line);
  }

  void planted(const LabMutant& mutant, bool is_graded) {
    const WorkFolder work;
    const std::string folder = work.path() + "/mutant";
    export_lab(lab_, source_, folder, true);
    for (const auto& [old_text, new_text] : mutant.replacements) {
      bool is_found = false;
      for (const LabFile& file : lab_.files) {
        std::string text = read_text(folder + "/" + file.name, most_file_bytes);
        const auto at = text.find(old_text);
        if (at == std::string::npos || is_found) continue;
        is_found = true;
        write_file(folder + "/" + file.name, text.replace(at, old_text.size(), new_text));
      }
      if (!is_found) fault("mutant '{}': the solution has no '{}'", mutant.name, old_text);
    }
    if (!is_graded) return;
    std::vector<std::string> expected = mutant.fails;
    std::ranges::sort(expected);
    const Grade found = graded(folder, mutant.name);
    if (!found.compiler_errors.empty())
      fault("mutant '{}' does not compile: {}", mutant.name, found.compiler_errors);
    if (failed(found) != expected)
      fault("mutant '{}' fails [{}], where it should fail [{}]", mutant.name,
            fmt::join(failed(found), ", "), fmt::join(expected, ", "));
    GradedMutant& row = result_.mutants.emplace_back();
    row.name = mutant.name;
    for (const EarnedPoints& each : found.obligations) row.loses.push_back(!each.wrong.empty());
  }

  const Lab& lab_;
  std::string source_;
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
  for (const GradedMutant& mutant : check.mutants) {
    text += "    ";
    for (std::size_t i = 0; i < mutant.loses.size(); ++i)
      text += fmt::format(" {:>{}}", mutant.loses[i] ? std::to_string(i + 1) : ".",
                          mutant.loses.size() < 10 ? 1 : 2);
    text += "  " + mutant.name + "\n";
  }
  return text;
}

LabCheck check_lab(const Lab& lab, const std::string& source_folder, int share) {
  require(share >= 1, fmt::format("every {}-th mutant", share), "use a number of at least 1");
  return Checked(lab, source_folder).check(share);
}

}  // namespace lockstep
