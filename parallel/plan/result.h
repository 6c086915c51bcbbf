// The measurements of a training run, compared with what was predicted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/counters.h"
#include "collectives/base/rank_site.h"

namespace lockstep {

struct StepRecord {
  int step = 0;
  double loss = 0;           // mean over all targets of the step, nats
  std::int64_t targets = 0;  // with documents; otherwise all tokens are inputs with a target
  // Before clipping; of replicas that take their steps alone, the largest of theirs.
  double grad_norm = 0;
  // Of a model with experts: the balancing loss, the mean over the sequences, and the z-loss, the mean
  // over the tokens, if it has an effect, both summed over layers and not in `loss`; the entropy of the
  // routers' probabilities, nats, the mean over tokens and layers; the share of choices that were
  // dropped; and the tokens of each expert, by layer with experts.
  std::optional<double> aux_loss = {}, router_z_loss = {};
  double router_entropy = 0, dropped_share = 0;
  std::vector<std::vector<std::int64_t>> tokens_of_experts = {};
  double seconds = 0;
  double tokens_per_second = 0;
  double loss_scale = 1;  // the loss scale of its gradients
  bool skipped = false;   // because its gradients overflowed
};

// A worker's step that took effect on its own, in an asynchronous mode.
struct UpdateRecord {
  int rank = 0, step = 0;  // the worker and its step
  int server = 0;          // the server that applied its part
  double seconds = 0;      // since the run began
  double loss = 0;         // of the worker's batch
  int lead = 0;            // steps the worker was ahead of the slowest
  int delay = 0;           // updates by others between its pull and its push
};

// Idle time over all time of a pipeline's ranks in its last steps, without the first one.
struct BubbleRecord {
  double fraction = 0;                      // measured
  std::optional<double> expected_fraction;  // by the closed form, if there is one
  double simulated_fraction = 0;            // with the mean times of each stage's passes
  double replayed_fraction = 0;             // with the time of each single pass
};

// Measurements of a pipeline.
struct PipelineRecord {
  int in_flight = 0;  // the most micro-batches, summed over stages
  std::optional<BubbleRecord> bubble;
};

// A rank that failed while the others continued.
struct LostRank {
  int rank = 0;
  int step = 0;
  std::string why;
};

struct ValidationRecord {
  int step = 0;  // optimizer steps taken before
  double loss = 0;
};

struct CheckpointRecord {
  int step = 0;  // steps taken before
  std::string folder;
  std::int64_t bytes = 0;      // of tensors
  double blocked_seconds = 0;  // while training waited
  double seconds = 0;          // until it was complete
};

// The checkpoint from which the run resumed.
struct ResumedRecord {
  int step = 0;  // steps taken before
  std::string folder;
  std::vector<std::int64_t> read_bytes;  // of tensors, by rank
};

// One entry of theory = measured.
struct TheoryRecord {
  std::string quantity;
  int rank = 0;
  std::string formula;
  double expected = 0;
  double measured = 0;
  bool exact = true;  // the two must be equal; otherwise the formula is an estimate
};

// Bytes that a rank moves from and to a second tier of memory.
struct TierTraffic {
  std::int64_t read_bytes = 0, written_bytes = 0;
  bool operator==(const TierTraffic&) const = default;
  TierTraffic operator-(const TierTraffic& before) const {
    return {.read_bytes = read_bytes - before.read_bytes,
            .written_bytes = written_bytes - before.written_bytes};
  }
  TierTraffic operator+(const TierTraffic& other) const {
    return {.read_bytes = read_bytes + other.read_bytes,
            .written_bytes = written_bytes + other.written_bytes};
  }
};

// Attention's work under a layout of tokens, with the documents of the last step.
struct LayoutRecord {
  std::string layout;
  std::vector<std::int64_t> pairs;  // (query, key) pairs of one head, of each group of ranks
};

// A rank's own time in a step, without waiting for others: the mean over steps without the first.
struct OwnTime {
  int steps = 0;
  double seconds = 0;
  double error = 0;   // standard error; infinite with fewer than 4 steps
  double waited = 0;  // the rest of a step
  double first = 0;   // of the first step, which also allocates and loads
};

// How long a rank has waited for messages of another, on all its threads.
struct WaitedFor {
  int rank = 0;
  double seconds = 0;
};

struct RankRecord {
  int rank = 0;
  std::map<std::string, Volume, std::less<>> traffic;  // of the last optimizer step, by label
  std::map<std::string, std::int64_t> peak_bytes;      // of the whole run, by use, and "total"
  TierTraffic offload;                                 // of the last optimizer step
  int in_flight = 0;                 // of a pipeline: micro-batches, summed over stages
  std::int64_t attention_pairs = 0;  // of context parallelism, in the last optimizer step
  // If ranks divide or split experts: the rows that this rank's experts computed in the last optimizer
  // step.
  std::optional<std::int64_t> expert_rows = {};
  double busy_seconds = 0, idle_seconds = 0, exposed_communication_seconds = 0,
         hidden_communication_seconds = 0;
  RankSite site;
  OwnTime own;
  std::vector<WaitedFor> waited_for;  // in the whole run, the longest first
};

struct TrainResult {
  std::vector<StepRecord> steps;
  std::vector<UpdateRecord> updates;
  std::vector<LostRank> lost;
  std::vector<ValidationRecord> validation;
  std::optional<ResumedRecord> resumed;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<RankRecord> ranks;
  std::vector<TheoryRecord> theory;
  std::vector<LayoutRecord> layouts;   // of context parallelism with documents
  std::optional<BubbleRecord> bubble;  // of a pipeline
  std::string transport;
  int world_size = 1;
  int threads_per_rank = 1;
  std::int64_t parameters = 0;
  std::int64_t tokens_per_step = 0;
  double unigram_entropy =
      0;  // of the training tokens, nats: the best that a model without context can reach
  std::string sample;
  std::vector<std::string> trace_events;  // of each rank, if a trace is recorded
};

// True if every exact entry of the theory holds.
bool theory_holds(const TrainResult& result);

}  // namespace lockstep
