#include "labs/grader/grade.h"

#include <algorithm>
#include <random>
#include <string_view>

#include "collectives/base/checksum.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"
#include "labs/grader/build.h"
#include "labs/grader/mistakes.h"
#include "labs/grader/regions.h"

namespace lockstep {
namespace {

// A submission can put anything into its errors: they must not break a format or a terminal.
std::string harmless(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = text.front() == '\n' ? 1 : printable_length(text);
    result += length > 0 ? text.substr(0, length) : "?";
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::uint64_t hidden_seed(const GradeOptions& options) {
  if (options.student.empty()) return checksum(options.secret);
  // No other secret and name give the same text: a name holds no zero byte.
  return checksum(options.student + std::string(1, '\0') + options.secret);
}

Judgement judge(const Lab& lab, const JudgedCode& code) {
  if (lab.operation.starts_with("answer")) return judge_answers(lab, code);
  const bool is_schedule = lab.operation == "pipeline_schedules" || lab.operation == "zero_bubble";
  return is_schedule ? judge_schedules(lab, code) : judge_collective(lab, code);
}

}  // namespace

int Grade::points() const {
  int sum = 0;
  for (const EarnedPoints& each : obligations) sum += each.points;
  return sum;
}

int Grade::earned() const {
  int sum = 0;
  for (const EarnedPoints& each : obligations) sum += each.earned;
  return sum;
}

std::string build_reference(const Lab& lab, const std::string& source_folder,
                            const WorkFolder& work) {
  for (const LabFile& file : lab.files)
    write_file(work.path() + "/" + file.name, cut(file, source_folder, true));
  const BuiltCode built = build_code(lab, work.path(), source_folder, work);
  if (!built.library.empty()) return built.library;
  throw Error(ErrorKind::wrong_result, "our own solution does not compile: " + built.errors);
}

Grade grade_without_points(const Lab& lab, const std::string& what) {
  Grade result{.lab = lab.number, .name = lab.name};
  for (const Obligation& each : lab.obligations)
    result.obligations.push_back({.obligation = each.name,
                                  .points = each.points,
                                  .earned = 0,
                                  .wrong = on_one_line(harmless(what)),
                                  .causes = {},
                                  .hints = {}});
  return result;
}

Grade grade(const Lab& lab, const std::string& submission, const GradeOptions& options) {
  Grade result{.lab = lab.number, .name = lab.name};
  Judgement judgement;
  if (lab.is_form()) {
    judgement = judge_placements(lab, submission, options.source_folder);
  } else {
    const WorkFolder work, work_of_reference;
    const BuiltCode code = options.compiled.empty()
                               ? build_code(lab, submission, options.source_folder, work)
                               : BuiltCode{.library = options.compiled, .errors = {}};
    result.compiler_errors = harmless(code.errors);
    if (!code.library.empty()) {
      std::random_device random;
      KnownMistakes own_mistakes(lab, options.source_folder);
      judgement = judge(
          lab, {.submission = code.library,
                .reference = options.reference.empty()
                                 ? build_reference(lab, options.source_folder, work_of_reference)
                                 : options.reference,
                .mistakes = options.mistakes ? *options.mistakes : own_mistakes,
                .data_seed = random(),
                .hidden_seed = hidden_seed(options)});
    }
  }
  for (const Obligation& obligation : lab.obligations) {
    const std::vector<std::string>& causes = judgement.causes[obligation.name];
    const std::string wrong =
        !result.compiler_errors.empty()
            ? "it does not compile"
            : on_one_line(harmless(judgement.verdicts.at(obligation.name))) + in_words(causes);
    EarnedPoints& earned = result.obligations.emplace_back();
    earned = {.obligation = obligation.name,
              .points = obligation.points,
              .earned = wrong.empty() ? obligation.points : 0,
              .wrong = wrong,
              .causes = causes,
              .hints = {}};
    for (int level = 0; level < options.hint_level && !wrong.empty(); ++level)
      earned.hints.push_back(obligation.hints.at(static_cast<std::size_t>(level)));
  }
  result.traced = std::move(judgement.traced);
  result.trace = std::move(judgement.trace);
  if (result.earned() == result.points()) result.race = race_time(lab, submission);
  // It may quote the submission.
  if (result.race) result.race->refused = on_one_line(harmless(result.race->refused));
  return result;
}

}  // namespace lockstep
