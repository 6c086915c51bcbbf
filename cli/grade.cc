// lockstep grade: grades a submission of a lab. Its code runs confined, in processes of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/grade_all.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/formats.h"
#include "labs/grader/submission.h"
#include "labs/sandbox.h"

namespace lockstep {
namespace {

struct GradeCommand {
  std::optional<int> number;
  GradeAllOptions all;  // with the hints and the secret of any grade
  std::string submission, student, json, gradescope, classroom, junit, markdown, html;
};

// Always writes the files, whatever was handed in, for the programs that read them.
void write(const GradeCommand& c, const Grade& result) {
  const std::pair<const std::string&, std::string (*)(const Grade&)> outputs[] = {
      {c.json, json_of},   {c.gradescope, gradescope_of}, {c.classroom, classroom_of},
      {c.junit, junit_of}, {c.markdown, markdown_of},     {c.html, html_of}};
  for (const auto& [path, format] : outputs)
    if (!path.empty()) write_file(path, format(result));
}

int run_all(const GradeCommand& c) {
  const std::pair<std::string_view, bool> given[] = {{"a lab", c.number.has_value()},
                                                     {"--submission", !c.submission.empty()},
                                                     {"--student", !c.student.empty()},
                                                     {"--json", !c.json.empty()},
                                                     {"--gradescope", !c.gradescope.empty()},
                                                     {"--classroom", !c.classroom.empty()},
                                                     {"--junit", !c.junit.empty()},
                                                     {"--markdown", !c.markdown.empty()},
                                                     {"--html", !c.html.empty()}};
  for (const auto& [name, is_given] : given)
    require(!is_given, fmt::format("{} with --all", name),
            "--all grades every lab in the folder, and writes each student's files into --output");
  require(!c.all.csv.empty(), "--all without --csv", "lockstep grade --all CLASS --csv book.csv");
  return grade_all(c.all);
}

int run(const GradeCommand& c) {
  if (!c.all.class_folder.empty()) return run_all(c);
  require(c.all.csv.empty() && c.all.output.empty() && c.all.course.empty(),
          "--csv, --output or --course without --all",
          "they are for a class: use --json, --html or another file for one grade");
  require(c.number && !c.submission.empty(), "grade without a lab and --submission",
          "lockstep grade 1 --submission my_lab; or a class: lockstep grade --all CLASS --csv "
          "book.csv");
  require(c.student.empty() || !c.all.secret_file.empty(), "--student without --secret",
          "a student's own hidden cases follow from both");
  const Lab lab = find_lab(read_labs(labs_folder()), *c.number);
  GradeOptions options{.source_folder = source_folder(), .hint_level = c.all.hints};
  if (!c.all.secret_file.empty()) options.secret = read_secret(c.all.secret_file, c.submission);
  options.student = c.student;
  std::vector<std::string> inputs;
  for (const LabFile& file : lab.files) inputs.push_back(c.submission + "/" + file.name);
  if (!c.all.secret_file.empty()) inputs.push_back(c.all.secret_file);
  check_outputs({c.json, c.gradescope, c.classroom, c.junit, c.markdown, c.html}, inputs);
  for (const std::string& missing : missing_protection())
    fmt::print(stderr, "lockstep: {}\n", missing);
  try {
    for (const LabFile& file : lab.files) read_submitted(c.submission, file.name);
  } catch (const Error& error) {
    write(c, grade_without_points(lab, error.what()));
    throw;
  }
  const Grade result = grade(lab, c.submission, options);
  write(c, result);
  fmt::print("{}", text_of(result));
  return result.earned() == result.points() ? 0 : 1;
}

}  // namespace

void add_grade(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<GradeCommand>();
  CLI::App* app = program.add_subcommand(
      "grade", "grade a submission of a lab: values, bytes, messages, order, memory");
  app->add_option("lab", c->number, "the number of the lab");
  app->add_option("--submission", c->submission, "the folder with the student's files");
  app->add_option("--all", c->all.class_folder,
                  "grade a class: CLASS/STUDENT/LAB holds a submission each, LAB being the lab's "
                  "number or the name of its folder");
  app->add_option(
      "--course", c->all.course,
      "with --all: the rules of the course, a course.json as lab export --course writes "
      "it; a submission is then CLASS/STUDENT/LAB/TIME, TIME being 20261005T215900Z");
  app->add_option("--csv", c->all.csv, "with --all: write the gradebook to this file");
  app->add_option("--output", c->all.output,
                  "with --all: folder for a page of the gradebook and each student's files "
                  "(default: BOOK, of --csv BOOK.csv); what it holds already is not graded again");
  app->add_option("--hints", c->all.hints,
                  "how much to hint at failed obligations: 0 (nothing) to 3 (nearly the answer)")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app->add_option("--secret", c->all.secret_file, "file whose text seeds the hidden cases");
  app->add_option("--student", c->student,
                  "with --secret: the hidden cases of this student, as --all has them");
  app->add_option("--json", c->json, "write the grade to this file");
  app->add_option("--gradescope", c->gradescope, "write Gradescope's results.json to this file");
  app->add_option("--classroom", c->classroom,
                  "write the result of a GitHub Classroom grader to this file");
  app->add_option("--junit", c->junit, "write the grade as JUnit XML to this file");
  app->add_option("--markdown", c->markdown, "write the grade as Markdown to this file");
  app->add_option("--html", c->html, "write a page with the submission's steps next to ours");
  app->callback([&chosen, c] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
