// lockstep grade: grades a submission of a lab. Its code runs confined, in processes of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/formats.h"
#include "labs/grader/submission.h"
#include "labs/sandbox.h"

namespace lockstep {
namespace {

struct GradeCommand {
  int number = 0, hints = 0;
  std::string submission, secret, json, gradescope, junit, markdown, html;
};

// Anyone who can read the file knows the hidden cases.
std::string secret_of(const GradeCommand& c) {
  constexpr std::int64_t most_bytes = 4096;
  namespace fs = std::filesystem;
  std::string text = read_text(c.secret, most_bytes);
  for (const std::string& folder : {source_folder(), c.submission}) {
    const fs::path way = fs::canonical(c.secret).lexically_relative(fs::weakly_canonical(folder));
    require(!way.empty() && *way.begin() == "..",
            fmt::format("{} lies in {}, which students have or which code can include", c.secret,
                        folder == c.submission ? "the submission" : "the sources"),
            "keep the secret outside of both");
  }
  return text;
}

// Always writes the files, whatever was handed in, for the programs that read them.
void write(const GradeCommand& c, const Grade& result) {
  const std::pair<const std::string&, std::string (*)(const Grade&)> outputs[] = {
      {c.json, json_of},
      {c.gradescope, gradescope_of},
      {c.junit, junit_of},
      {c.markdown, markdown_of},
      {c.html, html_of}};
  for (const auto& [path, format] : outputs)
    if (!path.empty()) write_file(path, format(result));
}

int run(const GradeCommand& c) {
  const Lab lab = find_lab(read_labs(labs_folder()), c.number);
  GradeOptions options{.source_folder = source_folder(), .hint_level = c.hints};
  if (!c.secret.empty()) options.secret = secret_of(c);
  std::vector<std::string> inputs;
  for (const LabFile& file : lab.files) inputs.push_back(c.submission + "/" + file.name);
  if (!c.secret.empty()) inputs.push_back(c.secret);
  check_outputs({c.json, c.gradescope, c.junit, c.markdown, c.html}, inputs);
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
  app->add_option("lab", c->number, "the number of the lab")->required();
  app->add_option("--submission", c->submission, "the folder with the student's files")->required();
  app->add_option("--hints", c->hints,
                  "how much to hint at failed obligations: 0 (nothing) to 3 (nearly the answer)")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app->add_option("--secret", c->secret, "file whose text seeds the hidden cases");
  app->add_option("--json", c->json, "write the grade to this file");
  app->add_option("--gradescope", c->gradescope, "write Gradescope's results.json to this file");
  app->add_option("--junit", c->junit, "write the grade as JUnit XML to this file");
  app->add_option("--markdown", c->markdown, "write the grade as Markdown to this file");
  app->add_option("--html", c->html, "write a page with the submission's steps next to ours");
  app->callback([&chosen, c] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
