// What each part of a plan states for a rank, and the sum of all parts: the rank's prediction. A part
// states only what it sends, moves and holds itself. No part changes what another one states, so the
// sum does not depend on their order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/prediction.h"

namespace lockstep {

// In the order in which the formulas of a sum name them.
enum class PlanPart : std::uint8_t {
  messages,  // between stages: their memory
  layers,    // split over ranks
  context,   // sequences split over ranks
  experts,   // divided between ranks
  pipeline,
  gradients,  // and parameters, exchanged with replicas or servers
  norm,
  router_balance,
  matrices,  // that a step needs whole
  states,    // parameters, gradients, and the optimizer's states
  activations,
  workspace,
  offload,
  kept_inputs,
  checkpoints,
};

// When bytes are held.
enum class Moment : std::uint8_t {
  always,  // once a first step was taken
  // While a collective needs scratch. These moments exclude each other: a peak contains the largest.
  reduction,
  norm_of_shards,
  norm_of_model,
  reduction_of_experts,
  gathers_of_frozen,
  gathers_of_packed,
  norm_of_expert_shards,
  norm_of_experts,
  router_balance,
  choices_of_sequences,
  after_validation,  // meets the scratch of a collective only if a step follows
};
inline constexpr int moments_of_peaks = 12;

struct Terms {
  // Part of a step's traffic. Without a label, it is only in the total.
  struct Sent {
    std::string label;
    Volume volume;
    std::string formula = {};  // of sent bytes
  };
  struct Held {
    MemoryUse use;
    Count bytes = 0;
    std::string formula = {};  // empty if the formula of another part covers it
    bool exact = true;
    Moment moment = Moment::always;
  };

  PlanPart part;
  int set =
      0;  // of parts that are given for each set of parameters: its place among the rank's sets
  std::vector<Sent> traffic = {};
  bool has_unknown_traffic = false;                       // then nobody knows the total either
  std::string bytes_formula = {}, messages_formula = {};  // of its traffic
  std::vector<Held> memory = {};
  std::optional<TierTraffic> offload = {};
  std::string offload_read_formula = {}, offload_written_formula = {};
  // As in a prediction.
  std::optional<Figure> attention_pairs = {}, in_flight = {};
  std::int64_t attentions = 0;
  std::optional<double> bubble_fraction = {};

  // Adds traffic in elements of `element_bytes`.
  void send(std::string label, const Traffic& traffic, Count element_bytes,
            std::string formula = {});
  void hold(Held held) { memory.push_back(std::move(held)); }
};

// Adds up the terms of all parts. Each part is given once, or once for each set of parameters.
Prediction sum_of_terms(std::vector<Terms> parts);

}  // namespace lockstep
