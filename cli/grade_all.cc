#include "cli/grade_all.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "cli/progress.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"
#include "labs/gradebook/grade_class.h"
#include "labs/gradebook/gradebook.h"
#include "labs/sandbox.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_within(const std::string& path, const std::string& folder) {
  const fs::path way = fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(folder));
  return !way.empty() && *way.begin() != "..";
}

// The folder for the students' grades.
std::string output_of(const GradeAllOptions& o) {
  const fs::path beside_csv = fs::path(o.csv).replace_extension();
  require(!o.output.empty() || beside_csv != o.csv,
          fmt::format("--csv {}: its name has no ending", printable(o.csv)),
          "call it BOOK.csv, and BOOK holds each student's grades; or name a folder with --output");
  const std::string output = fs::absolute(o.output.empty() ? beside_csv : fs::path(o.output));
  for (const std::string& path : {output, o.csv})
    require(!is_within(path, o.class_folder),
            fmt::format("{} lies in the class's folder", printable(path)),
            "write outside of it: its folders are students");
  require(!is_within(o.class_folder, output),
          fmt::format("the class's folder lies in {}", printable(output)), "name another --output");
  return output;
}

}  // namespace

std::string read_secret(const std::string& file, const std::string& submissions) {
  constexpr std::int64_t most_bytes = 4096;
  std::string text = read_text(file, most_bytes);
  for (const std::string& folder : {source_folder(), submissions})
    require(!is_within(file, folder),
            fmt::format("{} lies in {}, which students have or which code can include", file,
                        folder == submissions ? "the submission" : "the sources"),
            "keep the secret outside of both");
  return text;
}

int grade_all(const GradeAllOptions& o) {
  const std::vector<Lab> labs = read_labs(labs_folder());
  std::optional<Course> course;
  if (!o.course.empty()) course = read_course(o.course, labs);
  const ClassFolder all = read_class(o.class_folder, labs, course);
  std::optional<Progress> progress;
  ClassOptions options{.source_folder = source_folder(),
                       .output = output_of(o),
                       .hint_level = o.hints,
                       .secret = {},
                       .show = [&](int done, int to_grade) {
                         if (!progress) progress.emplace(to_grade);
                         progress->show(done);
                       }};
  if (!o.secret_file.empty()) options.secret = read_secret(o.secret_file, o.class_folder);
  check_outputs({o.csv}, {o.secret_file, o.course});
  for (const std::string& missing : missing_protection())
    fmt::print(stderr, "lockstep: {}\n", missing);

  const ClassGrading grading = grade_class(all, options);
  progress.reset();
  if (grading.is_interrupted)
    throw Error(ErrorKind::interrupted,
                fmt::format("{} of {} submissions are graded, and kept",
                            grading.graded + grading.kept, all.handed_in.size()),
                {.hint = "the same command grades the rest"});
  const Gradebook book = read_gradebook(all, course, options.output);
  write_file(o.csv, csv_of(book));
  write_file(options.output + "/index.html", page_of(book));
  fmt::print("{}{}: {} graded, {} kept; {}/index.html\n", summary_of(book), printable(o.csv),
             grading.graded, grading.kept, printable(options.output));
  for (const auto* faults : {&all.refused, &grading.failed})
    for (const std::string& fault : *faults) fmt::print(stderr, "lockstep: {}\n", fault);
  if (!grading.failed.empty()) return 1;
  return all.refused.empty() ? 0 : 2;
}

}  // namespace lockstep
