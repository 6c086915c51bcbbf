// Judges the lab "who owes a reduction?": how parameters lie along the axes of plans. A wrong
// answer is executed: the plan's gradients, summed and counted as the answer says, next to the
// right ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "labs/grader/judge.h"
#include "labs/grader/mistakes.h"
#include "labs/grader/submission.h"
#include "parallel/rank/placements.h"
#include "parallel/rank/rank_model.h"
#include "parallel/train/local_gradients.h"

namespace lockstep {
namespace {

constexpr const char* blank = "?";

Plan plan_of_lab(const LabPlan& plan, const std::string& source_folder) {
  PlanFile file =
      plan_from_json(parse_json<nlohmann::ordered_json>(plan.json, plan.name), plan.name);
  file.options.data = source_folder + "/GLOSSARY.md";
  return plan_of(file.options, file.ranks);
}

// The placement along each axis in a line of a submission.
using Said = std::vector<std::pair<Axis, Placed>>;

struct Asked {
  std::string parameter;
  Said right;
};

// Returns the parameters that the task asks for: those of both ends and of the first block, on rank
// 0.
std::vector<Asked> asked_of(const Plan& plan) {
  std::vector<Asked> asked;
  for (const PlacedColumns& placed : placements_of(plan, 0)) {
    if (placed.parameter.starts_with("h.") && !placed.parameter.starts_with("h.0.")) continue;
    Said& right = asked.emplace_back(Asked{placed.parameter, {}}).right;
    for (const Axis axis : plan.mesh.order())
      if (plan.length(axis) > 1) right.emplace_back(axis, placed.placement[axis].placed);
  }
  return asked;
}

std::string line_of(const Asked& asked, bool with_solution) {
  std::string line = fmt::format("{:<24}", asked.parameter);
  for (const auto& [axis, placed] : asked.right)
    line += fmt::format(" {}: {}", name_of(axis), with_solution ? name_of(placed) : blank);
  return line + "\n";
}

// The gradients of a plan's ranks, and what an answer would make of them.
class Consequences {
 public:
  explicit Consequences(const Plan& plan) : plan_(plan), gradients_(local_gradients(plan)) {}

  std::string of(const std::string& name, const Said& said, const Said& right) const {
    for (const auto& [axis, placed] : said)
      if (placed != Placed::sharded && axis == Axis::pp && !is_there(name, other_end()))
        return "no other stage has this parameter, so there is nobody to share it with";
    const std::vector<double> wrong_sum = summed(name, 0, said), sum = summed(name, 0, right);
    double difference = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) difference += std::pow(wrong_sum[i] - sum[i], 2);
    if (difference > 0)
      return fmt::format("run so, rank 0's gradient is off by {:.3f} times its norm",
                         std::sqrt(difference / square_of(sum)));
    return fmt::format(
        "run so, its share of the gradient norm is {:.3f} times the right one: elements count {}",
        std::sqrt(norm_of(name, said) / norm_of(name, right)),
        norm_of(name, said) > norm_of(name, right) ? "more than once"
                                                   : "for one rank, where others have more");
  }

 private:
  static double square_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
  }
  int other_end() const {
    AlongAxes place = plan_.mesh.place_of(0);
    place[Axis::pp] = plan_.ends_of_pipeline().second;
    return plan_.mesh.rank_at(place);
  }
  // Returns a rank's part of the gradient; for a tied embedding, the part of its copy.
  std::vector<double> local(const std::string& name, int rank) const {
    const RankOutline outline(plan_, rank);
    for (const Parameter& parameter : outline.parameters().list()) {
      if (parameter.name != name && parameter.whole_name() != name) continue;
      const auto& all = gradients_[static_cast<std::size_t>(rank)];
      return {all.begin() + parameter.offset, all.begin() + parameter.offset + parameter.count};
    }
    return {};
  }
  bool is_there(const std::string& name, int rank) const { return !local(name, rank).empty(); }

  // Returns the ranks that differ from `rank` along the axes that `said` marks with this word.
  std::vector<int> ranks_along(int rank, const Said& said, Placed word) const {
    std::vector<int> ranks;
    const AlongAxes here = plan_.mesh.place_of(rank);
    for (int other = 0; other < plan_.ranks; ++other) {
      const AlongAxes there = plan_.mesh.place_of(other);
      bool is_along = true;
      for (const auto& [axis, placed] : said)
        is_along = is_along && (placed == word || there[axis] == here[axis]);
      if (is_along) ranks.push_back(other);
    }
    return ranks;
  }
  std::vector<double> summed(const std::string& name, int rank, const Said& said) const {
    std::vector<double> sum = local(name, rank);
    for (const int other : ranks_along(rank, said, Placed::partial)) {
      const std::vector<double> part = other == rank ? std::vector<double>() : local(name, other);
      for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
    }
    return sum;
  }
  double norm_of(const std::string& name, const Said& said) const {
    double square = 0;
    for (const int rank : ranks_along(0, said, Placed::sharded))
      square += square_of(summed(name, rank, said));
    return square;
  }

  const Plan& plan_;
  std::vector<std::vector<double>> gradients_;
};

// The lines of a submission after "plan NAME", by parameter.
std::map<std::string, std::string> lines_of(const std::string& text, const std::string& plan) {
  std::map<std::string, std::string> lines;
  std::istringstream stream(text);
  bool is_inside = false;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string name, rest;
    words >> name;
    std::getline(words >> std::ws, rest);
    if (name == "plan") is_inside = rest.starts_with(plan + ":");
    if (is_inside && name != "plan" && !name.empty()) lines[name] = rest;
  }
  return lines;
}

// Parses a line; empty if it is not an answer.
std::optional<Said> said_of(const std::string& line, const Said& right) {
  Said said;
  std::istringstream words(line);
  for (const auto& [axis, placed] : right) {
    std::string name, word;
    if (!(words >> name >> word) || name != fmt::format("{}:", name_of(axis))) return {};
    bool is_known = false;
    for (const Placed each : {Placed::sharded, Placed::replicated, Placed::partial}) {
      if (word != name_of(each)) continue;
      said.emplace_back(axis, each);
      is_known = true;
    }
    if (!is_known) return {};
  }
  return said;
}

std::string wrong_answer(const Plan& plan, const std::map<std::string, std::string>& lines) {
  for (const auto& [name, right] : asked_of(plan)) {
    const auto found = lines.find(name);
    const std::optional<Said> said =
        found == lines.end() ? std::nullopt : said_of(found->second, right);
    if (!said)
      return fmt::format("{} has no answer: sharded, replicated or partial along each axis", name);
    for (std::size_t i = 0; i < said->size(); ++i) {
      if ((*said)[i] == right[i]) continue;
      return fmt::format("{} is not {} along {}: {}", name, name_of((*said)[i].second),
                         name_of((*said)[i].first), Consequences(plan).of(name, *said, right));
    }
  }
  return "";
}

// Whether every wrong line has what the mistake has there.
bool is_explained(const Plan& plan, const std::map<std::string, std::string>& lines,
                  const std::map<std::string, std::string>& of_mistake) {
  return std::ranges::all_of(asked_of(plan), [&](const Asked& asked) {
    const auto found = lines.find(asked.parameter);
    if (found == lines.end()) return false;
    const std::optional<Said> said = said_of(found->second, asked.right);
    return said &&
           (*said == asked.right || *said == said_of(of_mistake.at(asked.parameter), asked.right));
  });
}

}  // namespace

std::string placements_form(const Lab& lab, const std::string& source_folder, bool with_solution) {
  std::string text;
  for (const LabPlan& each : lab.plans) {
    text += fmt::format("plan {}: {}\n", each.name, each.flags);
    for (const Asked& asked : asked_of(plan_of_lab(each, source_folder)))
      text += line_of(asked, with_solution);
    text += "\n";
  }
  return text;
}

Judgement judge_placements(const Lab& lab, const std::string& submission,
                           const std::string& source_folder) {
  const std::string& form = lab.files.front().name;
  const std::string text = read_submitted(submission, form);
  Judgement judgement;
  for (const LabPlan& each : lab.plans) {
    const Plan plan = plan_of_lab(each, source_folder);
    const std::map<std::string, std::string> lines = lines_of(text, each.name);
    judgement.verdicts[each.name] = wrong_answer(plan, lines);
    if (judgement.verdicts[each.name].empty()) continue;
    for (const LabMutant& mutant : lab.mutants)
      if (mutant.cause == mutant.name &&
          is_explained(
              plan, lines,
              lines_of(solution_with(lab, mutant.replacements, source_folder).at(form), each.name)))
        judgement.causes[each.name].push_back(mutant.name);
  }
  return judgement;
}

}  // namespace lockstep
