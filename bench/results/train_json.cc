#include "bench/results/train_json.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bench/results/environment.h"
#include "bench/results/theory_json.h"
#include "collectives/base/json_text.h"
#include "models/data/documents.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json config_of(const Plan& plan, const LaunchOptions& world, const TrainResult& r) {
  ordered_json config = {{"technique", plan.technique()},
                         {"ranks", r.world_size},
                         {"transport", r.transport},
                         {"clock", name_of(world.clock)},
                         {"device", world.device ? world.device->name() : host_device().name()},
                         {"link", text_of(world.links)},
                         {"parameters", r.parameters}};
  config.update(options_json(plan));
  config["threads"] = r.threads_per_rank;
  return config;
}

// One worker's step, applied on its own.
ordered_json update_of(const UpdateRecord& update) {
  return {{"rank", update.rank},       {"step", update.step}, {"server", update.server},
          {"seconds", update.seconds}, {"loss", update.loss}, {"lead", update.lead},
          {"delay", update.delay}};
}

// {"total": n, label: n, ...} of one field of the volumes.
ordered_json by_label(const RankRecord& rank, std::int64_t Volume::*field) {
  ordered_json object = {{"total", 0}};
  std::int64_t total = 0;
  for (const auto& [label, volume] : rank.traffic) {
    object[label] = volume.*field;
    total += volume.*field;
  }
  object["total"] = total;
  return object;
}

ordered_json counts_of(const RankRecord& rank) {
  ordered_json object = {{"rank", rank.rank},
                         {"sent_bytes", by_label(rank, &Volume::sent_bytes)},
                         {"received_bytes", by_label(rank, &Volume::received_bytes)},
                         {"sent_messages", by_label(rank, &Volume::sent_messages)},
                         {"received_messages", by_label(rank, &Volume::received_messages)},
                         {"peak_bytes", rank.peak_bytes}};
  if (rank.offload != TierTraffic{})
    object["offload"] = {{"read_bytes", rank.offload.read_bytes},
                         {"written_bytes", rank.offload.written_bytes}};
  if (rank.attention_pairs > 0) object["attention_pairs"] = rank.attention_pairs;
  if (rank.expert_rows) object["expert_rows"] = *rank.expert_rows;
  return object;
}

ordered_json rank_of(const RankRecord& rank) {
  ordered_json all = counts_of(rank);
  all["host"] = rank.site.host;
  all["device"] = rank.site.device;
  all["time"] = {{"busy", rank.busy_seconds},
                 {"idle", rank.idle_seconds},
                 {"exposed_communication", rank.exposed_communication_seconds},
                 {"hidden_communication", rank.hidden_communication_seconds}};
  if (rank.own.steps > 0)
    all["own"] = {{"steps", rank.own.steps},
                  {"seconds", rank.own.seconds},
                  {"waited", rank.own.waited},
                  {"first_step", rank.own.first}};
  if (rank.own.steps > 0 && std::isfinite(rank.own.error)) all["own"]["error"] = rank.own.error;
  all["waited_for"] = ordered_json::array();
  for (const WaitedFor& waited : rank.waited_for)
    all["waited_for"].push_back({{"rank", waited.rank}, {"seconds", waited.seconds}});
  return all;
}

// Numbers the ranks that do the same work. Stages differ, and so do blocks of tokens under a causal
// mask and shares of a batch that cannot be divided evenly.
std::vector<int> kinds_of(const Plan& plan) {
  using Kind = std::tuple<bool, int, int, int>;
  std::map<Kind, int> numbers;
  std::vector<int> kinds;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const bool computes = plan.computes(rank);
    const Kind kind = computes ? Kind{true, plan.place(rank, Axis::pp), plan.place(rank, Axis::cp),
                                      plan.has_even_batches() ? 0 : plan.place(rank, Axis::dp)}
                               : Kind{};
    kinds.push_back(numbers.try_emplace(kind, static_cast<int>(numbers.size())).first->second);
  }
  return kinds;
}

}  // namespace

SlowRanks slow_ranks(const Plan& plan, const LaunchOptions& world, const TrainResult& result) {
  const std::vector<int> kinds = kinds_of(plan);
  std::vector<RankTime> times;
  double steps = 1;
  for (const RankRecord& rank : result.ranks) {
    if (rank.own.steps == 0) continue;  // a server
    steps = rank.own.steps;
    times.push_back({.rank = rank.rank,
                     .site = rank.site,
                     .kind = kinds[static_cast<std::size_t>(rank.rank)],
                     .own = {.seconds = rank.own.seconds, .error = rank.own.error},
                     .waited = rank.own.waited});
  }
  return slow_ranks(std::move(times), world.clock, steps);
}

std::string train_json(const Plan& plan, const LaunchOptions& world, const TrainResult& result) {
  ordered_json file = result_head("lockstep.train/1", world.device);
  file["config"] = config_of(plan, world, result);
  file["unigram_entropy"] = result.unigram_entropy;
  for (const char* list : {"steps", "validation", "ranks", "theory"})
    file[list] = ordered_json::array();
  for (const StepRecord& s : result.steps) {
    file["steps"].push_back({{"step", s.step},
                             {"loss", s.loss},
                             {"grad_norm", s.grad_norm},
                             {"seconds", s.seconds},
                             {"tokens_per_second", s.tokens_per_second},
                             {"loss_scale", s.loss_scale},
                             {"skipped", s.skipped}});
    if (plan.options.documents) file["steps"].back()["targets"] = s.targets;
    if (!s.aux_loss) continue;
    file["steps"].back()["aux_loss"] = *s.aux_loss;
    file["steps"].back()["router_entropy"] = s.router_entropy;
    if (s.router_z_loss) file["steps"].back()["router_z_loss"] = *s.router_z_loss;
    if (plan.model.experts.capacity > 0) file["steps"].back()["dropped_share"] = s.dropped_share;
    file["steps"].back()["tokens_of_experts"] = s.tokens_of_experts;
  }
  for (const ValidationRecord& v : result.validation)
    file["validation"].push_back({{"step", v.step}, {"loss", v.loss}});
  for (const RankRecord& rank : result.ranks) file["ranks"].push_back(rank_of(rank));
  if (const SlowRanks slow = slow_ranks(plan, world, result); slow.compared > 0)
    file["slow_ranks"] = json_of(slow);
  file["theory"] = theory_json(result.theory);
  if (result.resumed)
    file["resumed"] = {{"step", result.resumed->step},
                       {"folder", result.resumed->folder},
                       {"read_bytes", result.resumed->read_bytes}};
  for (const CheckpointRecord& checkpoint : result.checkpoints)
    file["checkpoints"].push_back({{"step", checkpoint.step},
                                   {"folder", checkpoint.folder},
                                   {"bytes", checkpoint.bytes},
                                   {"blocked_seconds", checkpoint.blocked_seconds},
                                   {"seconds", checkpoint.seconds}});
  for (const UpdateRecord& update : result.updates) file["updates"].push_back(update_of(update));
  for (const LostRank& lost : result.lost)
    file["lost"].push_back({{"rank", lost.rank}, {"step", lost.step}, {"why", lost.why}});
  for (const LayoutRecord& record : result.layouts)
    file["layouts"].push_back({{"layout", record.layout},
                               {"pairs", record.pairs},
                               {"imbalance", imbalance(record.pairs)}});
  if (result.bubble) {
    file["bubble"] = {{"fraction", result.bubble->fraction},
                      {"simulated_fraction", result.bubble->simulated_fraction},
                      {"replayed_fraction", result.bubble->replayed_fraction}};
    if (const auto expected = result.bubble->expected_fraction)
      file["bubble"]["expected_fraction"] = *expected;
  }
  if (!result.sample.empty()) file["sample"] = result.sample;
  return json_text(file);
}

std::string dry_run_json(const Plan& plan, const LaunchOptions& world, const TrainResult& result) {
  ordered_json file = result_head("lockstep.dry-run/1", world.device);
  file["plan"] = plan_json(plan);
  file["parameters"] = result.parameters;
  file["tokens_per_step"] = result.tokens_per_step;
  file["absent"] = {"steps", "validation", "time"};
  file["ranks"] = ordered_json::array({counts_of(result.ranks.front())});
  file["theory"] = theory_json(result.theory);
  return json_text(file);
}

}  // namespace lockstep
