// Puts the student's functions into an engine for the grader, and trains with it.
#include "labs/answer.h"
#include "labs/engine.h"

#include <bucket.cc>
#include <column_linear.cc>
#include <gpipe.cc>
#include <mesh.cc>
#include <one_f_one_b.cc>
#include <ring_all_gather.cc>
#include <ring_reduce_scatter.cc>
#include <row_linear.cc>
#include <runtime.cc>
#include <zero_bubble.cc>

#include <algorithm>
#include <cmath>

#include "models/ops/device_backend.h"
#include "parallel/plan/make_plan.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

enum class Asked : std::int64_t { values, peaks, everything };

constexpr int heads = 4, width = 16, tokens = 6, vocabulary = 20, steps = 2;

LabEngine engine() {
  return {.reduce_scatter = ring_reduce_scatter,
          .all_gather = ring_all_gather,
          .make_buckets = make_buckets,
          .begin = &BucketQueue::begin,
          .ready = &BucketQueue::ready,
          .columns = column_linear,
          .column_linear = column_linear,
          .row_linear = row_linear,
          .place_of = &Mesh::place_of,
          .rank_at = &Mesh::rank_at,
          .group_of = &Mesh::group_of,
          .make_runtime = make_runtime};
}

// problem: ranks, lengths of tp and pp, number of the schedule, micro-batches, sequences of each, layers
// of each stage, bytes of a bucket, what is asked, seed.
Plan plan_of(std::span<const std::int64_t> problem) {
  static constexpr const char* schedules[] = {"lab-gpipe", "lab-1f1b", "lab-zb-h1", "lab-zb-h2"};
  const auto number = [&](std::size_t i) { return static_cast<int>(problem[i]); };
  TrainOptions options = default_options("3d");
  options.mesh_lengths[Axis::tp] = number(1);
  options.mesh_lengths[Axis::pp] = number(2);
  options.schedule = schedules[problem[3]];
  options.micro_batches = number(4);
  options.global_batch = number(0) / (number(1) * number(2)) * number(4) * number(5);
  options.sequence_length = tokens;
  options.first_bucket_bytes = options.bucket_bytes = problem[7];
  options.dtype = DType::f64;
  options.optimizer = "sgd";
  // A rank has one thread.
  options.overlap = false;
  options.seed = static_cast<std::uint64_t>(problem[9]);
  return plan_of(options, number(0),
                 {.layers = number(2) * number(6),
                  .heads = heads,
                  .width = width,
                  .context = tokens,
                  .vocabulary = vocabulary});
}

std::int32_t token(std::int64_t seed, int step, int sequence, int place) {
  auto mixed = static_cast<std::uint64_t>(((seed * steps + step) * 1000 + sequence) * 1000 + place);
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return static_cast<std::int32_t>((mixed >> 32) % vocabulary);
}

std::vector<Batch> micro_batches(const Plan& plan, int rank, std::int64_t seed, int step) {
  std::vector<Batch> batches;
  for (int m = 0; m < plan.options.micro_batches; ++m) {
    const Share share = plan.share(rank).part(m, plan.options.micro_batches);
    Batch& batch = batches.emplace_back();
    batch.sequences = share.count;
    batch.length = tokens;
    batch.layout = plan.layout(rank);
    batch.first = share.first;
    batch.global_batch = plan.options.global_batch;
    batch.step = step;
    for (int sequence = share.first; sequence < share.first + share.count; ++sequence)
      for (int place = 0; place < tokens; ++place) {
        batch.inputs.push_back(token(seed, step, sequence, place));
        batch.targets.push_back(token(seed, step, sequence, place + 1));
      }
  }
  return batches;
}

// The norm of each parameter that this rank has. What is zero but for rounding is zero.
std::string norms(const char* what, TrainingRank& rank, bool are_gradients) {
  std::string text;
  for (const TrainingState& state : rank.states()) {
    const Parameters& own = *state.parameters;
    for (int i = 0; i < std::ssize(own.list()); ++i) {
      double squares = 0;
      for (const double each : host_span<double>(are_gradients ? own.gradient(i) : own.value(i)))
        squares += each * each;
      const double norm = squares < 1e-24 ? 0 : std::sqrt(squares);
      text += numbers(std::string(what) + own.list()[static_cast<std::size_t>(i)].name + ":",
                      std::span(&norm, 1));
    }
  }
  return text;
}

std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  train_with(engine(),
             {.gpipe = gpipe, .one_f_one_b = one_f_one_b, .zb_h1 = zb_h1, .zb_h2 = zb_h2});
  const auto asked = static_cast<Asked>(problem[8]);
  const Plan plan = plan_of(problem);
  Counters counters;
  Ledger& ledger = *comm.records().ledger;
  RankContext context{.world = comm, .counters = counters, .ledger = ledger, .trace = nullptr};
  const std::unique_ptr<Backend> backend = make_backend(ledger);
  const std::unique_ptr<TrainingRank> rank = make_runtime(context, plan, *backend);
  rank->load_weights();
  std::string text;
  for (int step = 0; step < steps; ++step) {
    const std::vector<Batch> batches = micro_batches(plan, comm.rank(), problem[9], step);
    const double loss = rank->accumulate(batches, plan.tokens_per_step(), 1),
                 norm = rank->gradient_norm();
    const std::string of_step = "step" + std::to_string(step) + ".";
    if (asked != Asked::peaks)
      text += numbers(of_step + "loss:", std::span(&loss, 1)) +
              norms((of_step + "gradient.").c_str(), *rank, true) +
              numbers(of_step + "norm:", std::span(&norm, 1));
    rank->update(0.1, 1 / std::max(1.0, norm));
    if (asked != Asked::peaks) text += norms((of_step + "value.").c_str(), *rank, false);
  }
  if (asked == Asked::values) return text;
  for (int use = 0; use < memory_uses; ++use) {
    const auto peak = ledger.peak_bytes(static_cast<MemoryUse>(use));
    text += numbers("peak." + std::string(name_of(static_cast<MemoryUse>(use))) + ":",
                    std::span(&peak, 1));
  }
  return text;
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  return functions;
}
