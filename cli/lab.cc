// lockstep lab: lists labs, writes their skeletons, and checks that their grader is right.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"
#include "labs/gradebook/similar.h"
#include "labs/grader/autograder.h"
#include "labs/grader/check.h"
#include "labs/grader/copy.h"
#include "labs/grader/export.h"

namespace lockstep {
namespace {

int list() {
  fmt::print("{:>3}  {:<24} {:>7} {:>6}  {}\n", "lab", "name", "minutes", "lesson", "title");
  for (const Lab& lab : read_labs(labs_folder()))
    fmt::print("{:>3}  {:<24} {:>7} {:>6}  {}\n", lab.number, printable(lab.name), lab.minutes,
               lab.lesson, printable(lab.title));
  return 0;
}

struct ExportCommand {
  std::optional<int> number;
  std::string folder, course;
  bool solution = false;
};

int write(const ExportCommand& c) {
  const std::vector<Lab> labs = read_labs(labs_folder());
  if (!c.course.empty()) {
    require(!c.number, "a lab with --course", "--course writes all labs");
    export_course(labs, labs_folder(), source_folder(), c.course);
    write_file(c.course + "/course.json", course_template(labs));
    write_autograder(labs_folder(), source_folder(), c.course + "/autograder.zip");
    write_file(c.course + "/.gitignore", "/autograder.zip\n");
    fmt::print("{}: {} labs; read its README.md\n", c.course, labs.size());
    return 0;
  }
  require(c.number && !c.folder.empty(), "lab export without a lab and a folder",
          "lockstep lab export 1 my_lab");
  export_lab(find_lab(labs, *c.number), source_folder(), c.folder, c.solution);
  fmt::print("{0}: read task.md; when you are done, run: lockstep grade {1} --submission {0}\n",
             c.folder, *c.number);
  return 0;
}

struct ApplyCommand {
  int number = 0;
  std::string submission, folder;
};

int apply(const ApplyCommand& c) {
  copy_with_submission(find_lab(read_labs(labs_folder()), c.number), c.submission, source_folder(),
                       c.folder);
  fmt::print(
      "{0} holds Lockstep with your code in the place of ours; its first command builds it:\n"
      "cd {0} && ./lockstep fuzz --plans 20\n",
      c.folder);
  return 0;
}

struct CheckCommand {
  std::vector<int> numbers;
  int share = 1;
};

int check(const CheckCommand& c) {
  const std::vector<Lab> labs = read_labs(labs_folder());
  std::vector<Lab> checked;
  for (const int number : c.numbers) checked.push_back(find_lab(labs, number));
  if (c.numbers.empty()) checked = labs;
  require(!checked.empty(), "there are no labs", "build again");
  bool is_right = true;
  std::ptrdiff_t named = 0, variants = 0;
  for (const Lab& lab : checked) {
    const LabCheck result = check_lab(lab, source_folder(), c.share);
    fmt::print("{:>3}  {:<24} {} of {} mutants{}\n", lab.number, lab.name, result.mutants.size(),
               lab.mutants.size(), result.faults.empty() ? ", all as expected" : "");
    fmt::print("{}", table_of(lab, result));
    for (const std::string& fault : result.faults) fmt::print("  {}\n", fault);
    is_right = is_right && result.faults.empty();
    named += std::ranges::count_if(result.mutants, &GradedMutant::is_named);
    variants += result.variants;
  }
  fmt::print("{} known mistakes named exactly; {} right variants graded\n", named, variants);
  return is_right ? 0 : 1;
}

struct SimilarCommand {
  std::string folder, course, html;
};

int similar(const SimilarCommand& c) {
  constexpr std::size_t most_pairs = 50;
  const std::vector<Lab> labs = read_labs(labs_folder());
  std::optional<Course> course;
  if (!c.course.empty()) course = read_course(c.course, labs);
  const ClassFolder all = read_class(c.folder, labs, course);
  check_outputs({c.html}, {c.course});
  std::vector<std::pair<const Lab*, SimilarSources>> found;
  for (const Lab* lab : all.labs) {
    // The answers of a form are words, which are the same when they are right.
    if (lab->is_form()) continue;
    found.emplace_back(lab, similar_sources(all, *lab, source_folder(), most_pairs));
    fmt::print("{}", table_of(*lab, found.back().second));
    for (const std::string& each : found.back().second.unreadable)
      fmt::print(stderr, "lockstep: {}\n", each);
  }
  for (const std::string& each : all.refused) fmt::print(stderr, "lockstep: {}\n", each);
  if (!c.html.empty()) write_file(c.html, page_of(found));
  return all.refused.empty() ? 0 : 2;
}

}  // namespace

void add_lab(CLI::App& program, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("lab", "labs: write a part of Lockstep yourself, and have it graded");
  app->require_subcommand(1);
  app->add_subcommand("list", "all labs")->callback([&chosen] { chosen = list; });

  auto c = std::make_shared<ExportCommand>();
  CLI::App* exported =
      app->add_subcommand("export", "write the skeleton and the task of a lab into a new folder");
  exported->add_option("lab", c->number, "the number of the lab");
  exported->add_option("folder", c->folder, "the new folder");
  exported->add_flag("--solution", c->solution, "with our solution");
  exported->add_option("--course", c->course, "write a course with all labs into this new folder");
  exported->callback([&chosen, c] { chosen = [c] { return write(*c); }; });

  auto a = std::make_shared<ApplyCommand>();
  CLI::App* applied = app->add_subcommand(
      "apply", "copy Lockstep's sources into a new folder, with your code in the place of ours");
  applied->add_option("lab", a->number, "the number of the lab")->required();
  applied->add_option("folder", a->folder, "the new folder")->required();
  applied->add_option("--submission", a->submission, "the folder with your files")->required();
  applied->callback([&chosen, a] { chosen = [a] { return apply(*a); }; });

  auto k = std::make_shared<CheckCommand>();
  CLI::App* checked = app->add_subcommand(
      "check",
      "prove that skeletons earn nothing, solutions everything, and mutants lose what they should");
  checked->add_option("labs", k->numbers, "their numbers (default: all)");
  checked->add_option("--share", k->share, "grade only every N-th mutant (default: all)");
  checked->callback([&chosen, k] { chosen = [k] { return check(*k); }; });

  auto m = std::make_shared<SimilarCommand>();
  CLI::App* alike = app->add_subcommand(
      "similar",
      "submissions of a class that resemble one another or our solution, for a person to judge");
  alike->add_option("class", m->folder, "the folder of the class, as of grade --all")->required();
  alike->add_option("--course", m->course, "the rules of the course, as of grade --all");
  alike->add_option("--html", m->html, "write a page with the lines side by side to this file");
  alike->callback([&chosen, m] { chosen = [m] { return similar(*m); }; });
}

}  // namespace lockstep
