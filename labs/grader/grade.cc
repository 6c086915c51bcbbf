#include "labs/grader/grade.h"

#include <algorithm>
#include <random>
#include <string_view>

#include "collectives/base/checksum.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/build.h"
#include "labs/grader/regions.h"

namespace lockstep {
namespace {

// The length of the first character of UTF-8; 0 if there is none, or if it moves a cursor.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\n' ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & 0x7fU >> bytes;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    code = code << 6U | (byte(i) & 0x3fU);
  }
  const unsigned least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0xa0;
  const bool is_character = code >= least && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) &&
                            code != 0xfffe && code != 0xffff;
  return is_character ? bytes : 0;
}

// A submission can put anything into its errors: they must not break a format or a terminal.
std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    result += bytes > 0 ? text.substr(0, bytes) : "?";
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return result;
}

std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

Judgement judge(const Lab& lab, const JudgedUnits& units) {
  if (lab.operation.starts_with("answer")) return judge_answers(lab, units);
  const bool is_schedule = lab.operation == "pipeline_schedules" || lab.operation == "zero_bubble";
  return is_schedule ? judge_schedules(lab, units) : judge_collective(lab, units);
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
  const BuiltUnit built = build_unit(lab, work.path(), source_folder, work);
  if (!built.library.empty()) return built.library;
  throw Error(ErrorKind::wrong_result, "our own solution does not compile: " + built.errors);
}

Grade grade(const Lab& lab, const std::string& submission, const GradeOptions& options) {
  Grade result{.lab = lab.number, .name = lab.name};
  Judgement judgement;
  if (lab.is_form()) {
    judgement = judge_placements(lab, submission, options.source_folder);
  } else {
    const WorkFolder work, work_of_reference;
    const BuiltUnit unit = build_unit(lab, submission, options.source_folder, work);
    result.compiler_errors = printable(unit.errors);
    if (!unit.library.empty()) {
      std::random_device random;
      judgement = judge(
          lab, {.submission = unit.library,
                .reference = options.reference.empty()
                                 ? build_reference(lab, options.source_folder, work_of_reference)
                                 : options.reference,
                .data_seed = random(),
                .hidden_seed = checksum(options.secret)});
    }
  }
  for (const Obligation& obligation : lab.obligations) {
    const std::string wrong = !result.compiler_errors.empty()
                                  ? "it does not compile"
                                  : on_one_line(printable(judgement.verdicts.at(obligation.name)));
    EarnedPoints& earned = result.obligations.emplace_back();
    earned = {.obligation = obligation.name,
              .points = obligation.points,
              .earned = wrong.empty() ? obligation.points : 0,
              .wrong = wrong,
              .hints = {}};
    for (int level = 0; level < options.hint_level && !wrong.empty(); ++level)
      earned.hints.push_back(obligation.hints.at(static_cast<std::size_t>(level)));
  }
  result.traced = std::move(judgement.traced);
  result.trace = std::move(judgement.trace);
  return result;
}

}  // namespace lockstep
