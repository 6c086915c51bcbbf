// What closed forms say of one rank: what it sends and receives in an optimizer step, and the most
// memory that it holds.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/base/counters.h"
#include "collectives/base/ledger.h"
#include "parallel/result.h"

namespace lockstep {

// A number, and the formula it comes from.
struct Figure {
  std::int64_t value = 0;
  std::string formula;
  bool exact = true;  // a measurement must equal it; otherwise it is an estimate
};

struct Prediction {
  std::map<std::string, Volume, std::less<>> traffic;  // by label; those that are not empty
  // Of all labels; nothing where a part of it cannot be known.
  std::optional<Volume> total = Volume{};
  std::map<std::string, std::string, std::less<>> formulas;   // of sent bytes, by label
  std::string bytes_formula, messages_formula;                // of the total
  std::array<std::optional<Figure>, memory_uses> peak_bytes;  // by MemoryUse
  std::optional<Figure> in_flight;  // micro-batches of a pipeline, stage by stage
  std::optional<double> bubble_fraction;

  // Adds what is sent and received under a label, in elements of that many bytes.
  void add(const std::string& label, const Traffic& traffic, Count element_bytes);
  // Adds to the total alone what goes under several labels.
  void add_to_total(const Traffic& traffic, Count element_bytes);
  void set(MemoryUse use, Count bytes, std::string formula, bool exact = true) {
    peak_bytes[static_cast<std::size_t>(use)] = {bytes, std::move(formula), exact};
  }
};

// Theory = measured: a line for each quantity that both know.
std::vector<TheoryRecord> theory_of(const Prediction& prediction, const RankRecord& measured);

}  // namespace lockstep
