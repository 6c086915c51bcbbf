#include "parallel/fuzz/check_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/gather/gather.h"
#include "parallel/dry_run.h"
#include "parallel/fuzz/case_steps.h"
#include "parallel/tags/check_tags.h"
#include "parallel/trainer.h"

namespace lockstep {
namespace {

struct Reference {
  std::vector<CaseStep> steps;
  Values weights;
};

// The same training on one rank in f64.
Reference reference_of(const FuzzCase& fuzz_case, const FuzzFiles& files) {
  FuzzPlan serial{.options = {}, .ranks = 1};
  take_training(serial.options, fuzz_case.plan.options);
  serial.options.dtype = DType::f64;
  serial.options.loss_scaling = "none";
  const Plan plan = plan_of(serial, files);
  Reference reference;
  launch_alone({.fault = {}}, 0, [&](RankContext& context) {
    CaseSteps steps(context, plan);
    for (int step = 0; step < fuzz_steps; ++step) reference.steps.push_back(steps.take(step));
    reference.weights = steps.values_of(Gathered::values);
  });
  return reference;
}

void run_rank(RankContext& context, const Plan& plan, const Reference& reference,
              Tolerance tolerance, CaseCheck& result) {
  CaseComparison comparison(context.world.rank(), tolerance);
  CaseSteps steps(context, plan);
  for (int number = steps.first(); number < fuzz_steps; ++number) {
    const CaseStep got = steps.take(number);
    const CaseStep& expected = reference.steps[static_cast<std::size_t>(number)];
    comparison.near(fmt::format("step {}: loss", number), got.loss, expected.loss);
    comparison.near(fmt::format("step {}: gradient norm", number), got.norm, expected.norm);
    comparison.near(fmt::format("step {}: clip factor", number), got.clip, expected.clip);
    if (context.world.rank() == 0)
      comparison.parameters(fmt::format("step {}: gradient", number), steps.whole(), got.gradients,
                            expected.gradients);
  }
  steps.compare_own_values(comparison, reference.weights);
  const Values weights = steps.values_of(Gathered::values);
  if (context.world.rank() == 0)
    comparison.parameters("value", steps.whole(), weights, reference.weights);
  steps.compare_predictions(comparison, fuzz_steps - 1);
  // Also under mpirun, where rank 0 reports.
  const CaseCheck& own = comparison.check();
  const double compared =
      steps.training().over_ranks(static_cast<double>(own.compared), ReduceOp::sum);
  const auto texts =
      gather_text(context.world, fmt::format("{}", fmt::join(own.differences, "\n")));
  if (context.world.rank() != 0) return;
  result.compared += static_cast<std::int64_t>(compared);
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) result.differences.push_back(line);
  }
}

// A dry run of one rank must count what it would among the others.
void check_dry_run(const FuzzCase& fuzz_case, const FuzzFiles& files, CaseCheck& result) {
  Plan plan = plan_of(fuzz_case.plan, files);
  plan.options.init.clear();
  const int rank = static_cast<int>(fuzz_case.seed % static_cast<unsigned>(plan.ranks));
  launch_alone(
      {.ranks = plan.ranks, .fault = {}, .device = &none_device()}, rank,
      [&](RankContext& context) {
        for (const TheoryRecord& t : dry_run(context, plan).theory) {
          if (!t.exact) continue;
          ++result.compared;
          if (t.expected != t.measured)
            result.differences.push_back(fmt::format("dry run of rank {}: {} is {}, predicted {}",
                                                     rank, t.quantity, t.measured, t.expected));
        }
      });
}

}  // namespace

CaseFolder::CaseFolder() {
  path_ = (std::filesystem::temp_directory_path() / "lockstep-fuzz-XXXXXX").string();
  require(mkdtemp(path_.data()) != nullptr,
          fmt::format("cannot make the folder {}: {}", path_, std::strerror(errno)),
          "set TMPDIR to a folder that can be written");
}
CaseFolder::~CaseFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_checkpoint(const FuzzCase& fuzz_case, const FuzzFiles& files,
                      const CaseOptions& options) {
  Plan plan = plan_of(*fuzz_case.before, files);
  plan.options.steps = 1;
  plan.options.checkpoint = files.checkpoint();
  launch({.ranks = plan.ranks, .timeout_s = options.timeout_s, .fault = {}},
         [&](RankContext& context) { train(context, plan); });
}

CaseCheck check_case(const FuzzCase& fuzz_case, const FuzzFiles& files,
                     const CaseOptions& options) {
  CaseCheck result;
  const Reference reference = reference_of(fuzz_case, files);
  Plan plan = plan_of(fuzz_case.plan, files);
  if (fuzz_case.before) plan.options.resume = files.checkpoint();
  LaunchOptions world{.ranks = plan.ranks, .timeout_s = options.timeout_s, .fault = options.fault};
  if (options.longest_delay_s > 0)
    world.disturbance = {.seed = fuzz_case.seed,
                         .longest_delay_s = options.longest_delay_s,
                         .has_windows = fuzz_case.seed % 2 == 0};
  Tolerance tolerance = tolerance_of(plan.options);
  if (fuzz_case.before) {
    const Tolerance before = tolerance_of(fuzz_case.before->options);
    if (before.relative > tolerance.relative) tolerance = before;
  }
  launch(world,
         [&](RankContext& context) { run_rank(context, plan, reference, tolerance, result); });
  if (result.compared > 0) check_dry_run(fuzz_case, files, result);  // on rank 0
  return result;
}

CaseCheck check_tags_of_case(const FuzzCase& fuzz_case) {
  const CaseFolder folder;
  const FuzzFiles files = folder.files();
  CaseCheck check;
  try {
    write_files(fuzz_case, files);
    Plan plan = plan_of(fuzz_case.plan, files);
    plan.options.init.clear();
    std::vector<int> ranks(static_cast<std::size_t>(plan.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    check.compared = check_tags_of(plan, ranks);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    check = {.compared = 1, .differences = {error.what()}, .has_ended = true};
  }
  return check;
}

CaseCheck check_case_on_threads(const FuzzCase& fuzz_case, const CaseOptions& options) {
  const CaseFolder folder;
  const FuzzFiles files = folder.files();
  try {
    write_files(fuzz_case, files);
    if (fuzz_case.before) write_checkpoint(fuzz_case, files, options);
    return check_case(fuzz_case, files, options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    return {.compared = 1, .differences = {error.what()}, .has_ended = true};
  }
}

}  // namespace lockstep
