// What a plan predicts for one rank: what it sends and receives in an optimizer step, and its peak
// memory. terms.h adds it up.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/base/counters.h"
#include "collectives/base/ledger.h"
#include "parallel/plan/result.h"

namespace lockstep {

// A number and its formula.
struct Figure {
  std::int64_t value = 0;
  std::string formula = {};
  bool exact = true;  // a measurement must equal it; otherwise it is an estimate

  bool operator==(const Figure&) const = default;
};

struct Prediction {
  std::map<std::string, Volume, std::less<>> traffic;  // by label; only labels with traffic
  // The sum over all labels; empty if a part of it is unknown.
  std::optional<Volume> total = Volume{};
  std::map<std::string, std::string, std::less<>> formulas;   // of sent bytes, by label
  std::string bytes_formula, messages_formula;                // of the total, a sum of terms
  std::array<std::optional<Figure>, memory_uses> peak_bytes;  // by MemoryUse
  // For context parallelism: the (query, key) pairs of a step, without documents; and how often a
  // step computes each pair of a sequence.
  std::optional<Figure> attention_pairs;
  std::int64_t attentions = 0;
  std::optional<TierTraffic> offload;  // of a step, if anything is offloaded
  std::string offload_read_formula, offload_written_formula;
  std::optional<Figure> in_flight;  // micro-batches of a pipeline, summed over stages
  std::optional<double> bubble_fraction;

  bool operator==(const Prediction&) const = default;
};

// Compares theory with measurement: returns an entry for each quantity that both contain.
std::vector<TheoryRecord> theory_of(const Prediction& prediction, const RankRecord& measured);

}  // namespace lockstep
