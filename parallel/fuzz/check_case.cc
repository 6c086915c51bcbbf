#include "parallel/fuzz/check_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <numeric>
#include <sstream>

#include "collectives/barrier/barrier.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/gather/gather.h"
#include "parallel/fuzz/compare_runs.h"
#include "parallel/fuzz/invariants.h"
#include "parallel/fuzz/kept.h"
#include "parallel/train/dry_run.h"

namespace lockstep {
namespace {

constexpr std::int64_t most_history_bytes = 1 << 20;

History read_history(const FuzzFiles& files, int steps) {
  History history;
  if (steps == 0) return history;
  std::istringstream text(read_text(files.history(), most_history_bytes));
  StepTaken taken;
  for (int step = 0; step < steps && text >> taken.scale >> taken.skipped; ++step)
    history[step] = taken;
  return history;
}

void write_history(const FuzzFiles& files, const History& history) {
  std::string text;
  for (const auto& [step, taken] : history)
    text += fmt::format("{} {:d}\n", taken.scale, taken.skipped);
  write_file(files.history(), text);
}

// The trainings on one rank that all ranks of this process compare theirs with. The first rank that
// asks for them runs them, because only then it is known which steps were skipped.
class References {
 public:
  References(const FuzzCase& fuzz_case, const FuzzFiles& files)
      : fuzz_case_(fuzz_case), files_(files) {}

  struct Pair {
    ReferenceRun exact;                   // in f64
    std::optional<ReferenceRun> of_type;  // in the plan's type, if that is not f64
  };
  const Pair& after(const History& taken) {
    const std::lock_guard lock(mutex_);
    if (!pair_) {
      const DType dtype = fuzz_case_.last().options.dtype;
      pair_.emplace(serial_run(fuzz_case_, files_, DType::f64, taken), std::nullopt);
      if (dtype != DType::f64) pair_->of_type = serial_run(fuzz_case_, files_, dtype, taken);
    }
    return *pair_;
  }

 private:
  const FuzzCase& fuzz_case_;
  const FuzzFiles& files_;
  std::mutex mutex_;
  std::optional<Pair> pair_;
};

// Also under mpirun, where rank 0 reports.
void collect_checks(Communicator& world, const CaseCheck& own, CaseCheck& result) {
  world.set_label(report_label);
  const auto texts =
      gather_text(world, fmt::format("{}\n{}", own.compared, fmt::join(own.differences, "\n")));
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    result.compared += std::stoll(line);
    while (std::getline(lines, line))
      if (!line.empty()) result.differences.push_back(line);
  }
}

// A plan of a case; the plans before it have been run.
class PlanCheck {
 public:
  PlanCheck(const FuzzCase& fuzz_case, std::size_t number, const FuzzFiles& files,
            const CaseOptions& options)
      : fuzz_case_(fuzz_case),
        number_(number),
        files_(files),
        plan_(plan_of(fuzz_case, number, files)),
        before_(read_history(files, fuzz_case.first_step(number))),
        world_{.ranks = plan_.ranks, .timeout_s = options.timeout_s, .fault = {}} {
    if (is_last()) world_.fault = options.fault;
    if (options.longest_delay_s > 0)
      world_.disturbance = {.seed = fuzz_case.seed,
                            .longest_delay_s = options.longest_delay_s,
                            .has_windows = fuzz_case.seed % 2 == 0};
    for (std::size_t i = 0; i <= number; ++i) {
      const TrainOptions& o = fuzz_case.plans[i].options;
      tolerance_ = loosest(tolerance_, tolerance_of(o));
      tolerance_of_type_ = loosest(tolerance_of_type_, tolerance_of_type(o));
    }
  }

  CaseCheck get() {
    if (drops_by_rank(fuzz_case_.plans[number_]))
      compare_recomputations();
    else
      compare_with_one_rank();
    // On rank 0.
    if (result_.compared > 0 && !plan_.has_servers()) check_dry_run();
    return result_;
  }

 private:
  bool is_last() const { return number_ + 1 == fuzz_case_.plans.size(); }

  void compare_with_one_rank() {
    References references(fuzz_case_, files_);
    run(plan_, [&](CaseComparison& comparison, int rank, const RunOnRank& got, const History& all) {
      const References::Pair& expected = references.after(all);
      const ReferenceRun& rounded = expected.of_type ? *expected.of_type : expected.exact;
      comparison.against("on one rank", tolerance_);
      compare_runs(comparison, rank, plan_, got, expected.exact, rounded);
      if (rank == 0 && compresses(plan_.options)) {
        comparison.against("of exact ones", tolerance_of_exchange(plan_.options));
        compare_compressed(comparison, plan_, got.kept, expected.exact);
      }
      if (!expected.of_type) return;
      comparison.against(fmt::format("on one rank in {}", name_of(plan_.options.dtype)),
                         tolerance_of_type_);
      compare_runs(comparison, rank, plan_, got, rounded, expected.exact);
      if (plan_.options.loss_scaling != "none") compare_overflows(comparison, got.taken, rounded);
    });
  }

  // For the references.
  void write_compressed(Communicator& world, const RunOnRank& run) {
    if (world.rank() == 0)
      for (const auto& [number, step] : run.steps)
        if (!run.taken.at(number).skipped) write_values(files_.gradients(number), step.gradients);
    world.set_label(report_label);
    barrier(world);
  }
  // No other ranks drop the same elements: what backward computes again must be what forward has
  // computed.
  void compare_recomputations() {
    const Plan reference = plan_with("none", false);
    CaseRun expected;
    launch({.ranks = reference.ranks, .timeout_s = world_.timeout_s, .fault = {}},
           [&](RankContext& context) {
             RunOnRank run = run_case(context, reference);
             if (context.world.rank() == 0) expected = std::move(run);
           });
    const auto compare = [&](const Plan& plan) {
      run(plan, [&](CaseComparison& comparison, int rank, const RunOnRank& got, const History&) {
        // The same bits, except for copies of a tied embedding, which lie in different shards; a
        // checkpoint makes them equal.
        const bool is_resumed = !plan.options.resume.empty();
        comparison.against(
            "with --recompute none",
            is_resumed ? tolerance_of_type_ : Tolerance{.values = tolerance_of_type_.values});
        compare_runs(comparison, rank, plan, got, expected, expected);
      });
    };
    compare(plan_);
    for (const char* recompute : {"selective", "full"})
      if (recompute != plan_.options.recompute && is_last()) compare(plan_with(recompute, true));
  }
  Plan plan_with(const std::string& recompute, bool resumes) const {
    FuzzCase other = fuzz_case_;
    TrainOptions& o = other.plans[number_].options;
    o.recompute = recompute;
    o.checkpoint.clear();
    if (!resumes) o.resume.clear();
    return plan_of(other, number_, files_);
  }

  // Trains on all ranks, and compares on each of them what every plan has: compare(comparison, rank,
  // run, history).
  template <typename Compare>
  void run(const Plan& plan, Compare compare) {
    History all = before_;
    launch(world_, [&](RankContext& context) {
      const int rank = context.world.rank();
      const RunOnRank got = run_case(context, plan);
      if (compresses(plan.options)) write_compressed(context.world, got);
      History own = before_;
      own.insert(got.taken.begin(), got.taken.end());
      CaseComparison comparison(rank);
      compare(comparison, rank, got, own);
      compare_scales(comparison, plan, own, fuzz_case_.first_step(number_));
      compare_traffic(comparison, got.counted, got.prediction);
      compare_theory(comparison, got.theory);
      check_invariants(comparison, plan, rank);
      collect_checks(context.world, comparison.check(), result_);
      if (rank != 0) return;
      all = own;
      for (const auto& [step, taken] : got.taken) result_.skipped_steps += taken.skipped ? 1 : 0;
      result_.turned_steps += comparison.check().turned_steps;
    });
    write_history(files_, all);
  }

  // A dry run of one rank must count what it would among the others.
  void check_dry_run() {
    Plan plan = plan_;
    // A dry run has no data.
    TrainOptions& o = plan.options;
    for (std::string* const file : {&o.init, &o.lora_init, &o.checkpoint, &o.resume}) file->clear();
    const int rank = static_cast<int>(fuzz_case_.seed % static_cast<unsigned>(plan.ranks));
    CaseComparison comparison(rank);
    launch_alone({.ranks = plan.ranks, .fault = {}, .device = &none_device()}, rank,
                 [&](RankContext& context) {
                   std::vector<TheoryRecord> theory = dry_run(context, plan).theory;
                   for (TheoryRecord& record : theory) record.quantity += " in a dry run";
                   compare_theory(comparison, theory);
                 });
    result_ += comparison.check();
  }

  const FuzzCase& fuzz_case_;
  std::size_t number_;
  const FuzzFiles& files_;
  Plan plan_;
  History before_;  // the steps of the plans before it
  LaunchOptions world_;
  Tolerance tolerance_ = {}, tolerance_of_type_ = {};
  CaseCheck result_;
};

}  // namespace

CaseCheck check_plan(const FuzzCase& fuzz_case, std::size_t plan, const FuzzFiles& files,
                     const CaseOptions& options) {
  return PlanCheck(fuzz_case, plan, files, options).get();
}

CaseCheck check_plans_before(const FuzzCase& fuzz_case, const FuzzFiles& files,
                             const CaseOptions& options) {
  CaseCheck check;
  for (std::size_t i = 0; i + 1 < fuzz_case.plans.size() && check.differences.empty(); ++i)
    check += check_plan(fuzz_case, i, files, options);
  return check;
}

CaseCheck check_tags_of_case(const FuzzCase& fuzz_case) {
  const CaseFolder folder;
  const FuzzFiles files = folder.files();
  CaseCheck check;
  try {
    write_files(fuzz_case, files);
    Plan plan = plan_of(fuzz_case, fuzz_case.plans.size() - 1, files);
    plan.options.init.clear();
    plan.options.lora_init.clear();
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
  CaseCheck check;
  try {
    write_files(fuzz_case, files);
    check += check_plans_before(fuzz_case, files, options);
    if (check.differences.empty())
      check += check_plan(fuzz_case, fuzz_case.plans.size() - 1, files, options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    check.compared += 1;
    check.differences.emplace_back(error.what());
    check.has_ended = true;
    check.is_refused = error.kind() == ErrorKind::bad_input;
  }
  return check;
}

}  // namespace lockstep
