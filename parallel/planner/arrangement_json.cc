#include "parallel/planner/arrangement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view known_plan_keys[] = {"tp",
                                                "cp",
                                                "pp",
                                                "dp",
                                                "ep",
                                                "etp",
                                                "order",
                                                "zero",
                                                "schedule",
                                                "virtual_stages",
                                                "micro_batch_size",
                                                "global_batch",
                                                "sequence_length",
                                                "recompute",
                                                "sequence_parallel",
                                                "dtype",
                                                "gemm_dtype",
                                                "layers_per_stage",
                                                "ends_count_as_layers",
                                                "tp_overlap"};

constexpr int most_virtual_stages = 1000;

// Which axis comes first after tp and cp: dp, or pp.
const std::string orders[] = {"tp-cp-dp-pp", "tp-cp-pp-dp"};

class PlanKeys {
 public:
  PlanKeys(const ordered_json& plan, const std::string& where) : plan_(plan), where_(where) {
    expect(plan.is_object(), [] { return std::string("\"plan\" is not an object"); });
    for (const auto& [key, value] : plan.items())
      expect(
          std::ranges::count(known_plan_keys, std::string_view(key)) > 0,
          [&, &name = key] {
            return fmt::format("the plan has an unknown \"{}\"", printable(name));
          },
          fmt::format("known are {}", fmt::join(known_plan_keys, ", ")));
  }

  bool has(const char* key) const { return plan_.contains(key) && !plan_[key].is_null(); }
  std::int64_t integer(const char* key, std::int64_t instead, std::int64_t least = 1,
                       std::int64_t most = 1 << 24) const {
    if (!has(key)) return instead;
    const ordered_json& value = plan_[key];
    expect(
        value.is_number_integer() && value >= least && value <= most,
        [&] { return fmt::format("the plan's \"{}\" is {}", key, shown(value)); },
        fmt::format("use an integer from {} to {}", least, most));
    return value;
  }
  int number(const char* key, int instead, int least = 1, int most = 1 << 20) const {
    return static_cast<int>(integer(key, instead, least, most));
  }
  bool flag(const char* key) const {
    if (!has(key)) return false;
    expect(
        plan_[key].is_boolean(),
        [&] { return fmt::format("the plan's \"{}\" is {}", key, shown(plan_[key])); },
        "use true or false");
    return plan_[key];
  }
  // One of the names; the first if it is not given.
  std::string name(const char* key, const std::vector<std::string>& names) const {
    if (!has(key)) return names.front();
    expect(
        plan_[key].is_string() && std::ranges::count(names, plan_[key].get<std::string>()) > 0,
        [&] { return fmt::format("the plan's \"{}\" is {}", key, shown(plan_[key])); },
        fmt::format("use {}", fmt::join(names, " or ")));
    return plan_[key];
  }
  std::vector<int> integers(const char* key) const {
    std::vector<int> values;
    if (!has(key)) return values;
    expect(plan_[key].is_array() && plan_[key].size() <= 10'000,
           [&] { return fmt::format("the plan's \"{}\" is not a list", key); });
    for (const ordered_json& value : plan_[key]) {
      expect(
          value.is_number_integer() && value >= 0 && value <= 1'000'000,
          [&] { return fmt::format("the plan's \"{}\" has {}", key, shown(value)); },
          "use layers of each stage");
      values.push_back(value);
    }
    return values;
  }

  template <typename Message>
  void expect(bool holds, Message message, std::string_view hint = "") const {
    require(
        holds, [&] { return fmt::format("{}: {}", where_, message()); }, hint);
  }

 private:
  const ordered_json& plan_;
  const std::string& where_;
};

std::vector<std::string> schedule_names() {
  std::vector<std::string> names = {"1f1b", "afab"};
  for (const ScheduleEntry& entry : schedules())
    if (entry.name != names.front()) names.emplace_back(entry.name);
  return names;
}

// Megatron calls 1F1B interleaved if a rank has several stages; others call GPipe AFAB.
std::string schedule_of(const std::string& name, int virtual_stages) {
  if (name == "afab") return "gpipe";
  return name == "1f1b" && virtual_stages > 1 ? "interleaved" : name;
}

// The layers of each stage. If `ends_count`, the embedding counts as a layer of the first stage, and
// the head as one of the last.
void divide_layers(Arrangement& a, std::int64_t layers, bool ends_count) {
  const std::int64_t slots = layers + (ends_count ? 2 : 0);
  a.layers_per_stage = balanced_layers(slots, a.stages());
  if (ends_count) --a.layers_per_stage.front(), --a.layers_per_stage.back();
  if (slots % a.stages() != 0)
    a.assumptions.push_back(
        fmt::format("layers_per_stage is {}", fmt::join(a.layers_per_stage, ",")));
}

void take_experts(Arrangement& a, const Transformer& model, const PlanKeys& keys) {
  a.ep = keys.number("ep", 1);
  a.etp = keys.number("etp", 1);
  const bool are_there = model.experts.count > 0;
  keys.expect(
      are_there || a.ep * std::int64_t{a.etp} == 1,
      [&] { return std::string(a.ep > 1 ? "ep is given" : "etp is given"); },
      "the model has no experts");
  if (are_there && a.tp > 1 && !keys.has("etp")) a.assumptions.push_back("etp is 1");
  if (model.predicts_further) a.assumptions.push_back("num_nextn_predict_layers is 0");
}

void check_expert_shapes(const Arrangement& a, const Transformer& model, const PlanKeys& keys) {
  keys.expect(
      model.experts.count % a.ep == 0,
      [&] { return fmt::format("{} experts are not divisible by {}", model.experts.count, a.ep); },
      "choose an ep that divides them");
  keys.expect(
      model.experts.ffn % a.etp == 0,
      [&] {
        return fmt::format("{} columns of an expert are not divisible by {}", model.experts.ffn,
                           a.etp);
      },
      "choose an etp that divides them");
  keys.expect(
      std::int64_t{a.tp} * a.cp * a.dp % (std::int64_t{a.ep} * a.etp) == 0,
      [&] {
        return fmt::format("ep {} x etp {} does not divide tp {} x cp {} x dp {}", a.ep, a.etp,
                           a.tp, a.cp, a.dp);
      },
      "experts lie on the GPUs of a stage");
  keys.expect(
      a.tp == 1 || a.sequence_parallel,
      [&] { return fmt::format("experts with tp {} without sequence_parallel", a.tp); },
      "each rank of tp sends the tokens that are its own: use sequence_parallel true");
}

void check_shapes(const Arrangement& a, const Transformer& model, const PlanKeys& keys) {
  const auto divides = [&](std::int64_t by, std::int64_t whole, std::string_view what,
                           std::string_view hint) {
    keys.expect(
        whole % by == 0,
        [&] { return fmt::format("{} {} are not divisible by {}", whole, what, by); }, hint);
  };
  keys.expect(
      std::int64_t{a.tp} * a.cp * a.pp * a.dp == a.gpus,
      [&] {
        return fmt::format("tp {} x cp {} x pp {} x dp {} is not {} GPUs", a.tp, a.cp, a.pp, a.dp,
                           a.gpus);
      },
      "their product must be the GPUs");
  divides(a.tp, model.heads, "heads", "choose a tp that divides them");
  keys.expect(
      model.kv_heads % a.tp == 0 || a.tp % model.kv_heads == 0,
      [&] { return fmt::format("tp {} does not fit {} key/value heads", a.tp, model.kv_heads); },
      "one must divide the other");
  if (model.has_dense_layers())
    divides(a.tp, model.ffn, "columns of the MLP", "choose a tp that divides them");
  divides(a.tp, model.experts.shared_ffn, "columns of the shared experts",
          "choose a tp that divides them");
  if (model.experts.count > 0) check_expert_shapes(a, model, keys);
  if (a.cp > 1)
    divides(2 * a.cp, a.sequence_length, "tokens of a sequence",
            "each rank of cp has two equal parts of a sequence");
  if (a.sequence_parallel)
    divides(a.tp, a.sequence_length / a.cp, "tokens of a rank",
            "sequence_parallel divides them by tp");
  divides(a.micro_batch_size * a.dp, a.global_batch, "sequences of a step",
          "global_batch must be a multiple of micro_batch_size x dp");
  keys.expect(
      a.passes() <= most_passes,
      [&] {
        return fmt::format("{} micro-batches of {} stages", a.passes() / a.stages(), a.stages());
      },
      fmt::format("a step of up to {} passes is replayed: use larger micro-batches", most_passes));
  keys.expect(
      std::accumulate(a.layers_per_stage.begin(), a.layers_per_stage.end(), std::int64_t{0}) ==
              model.layers &&
          static_cast<int>(a.layers_per_stage.size()) == a.stages(),
      [&] {
        return fmt::format("layers_per_stage {} are not the {} layers of {} stages",
                           fmt::join(a.layers_per_stage, ","), model.layers, a.stages());
      },
      "give one number for each of pp x virtual_stages stages");
  keys.expect(
      a.pp > 1 || a.virtual_stages == 1,
      [&] { return fmt::format("{} virtual stages with pp 1", a.virtual_stages); },
      "virtual stages divide the layers of a pipeline's rank: give a pp, or 1");
  keys.expect(
      a.zero_stage < 2 || a.pp == 1,
      [&] { return fmt::format("zero {} with pp {}", a.zero_stage, a.pp); },
      "the cost model knows zero 2 and 3 without a pipeline");
}

}  // namespace

std::string_view order_of(const Arrangement& a) { return orders[a.stages_first ? 1 : 0]; }

Arrangement arrangement_from(const ordered_json& plan, int gpus, const Transformer& model,
                             const std::string& where) {
  const PlanKeys keys(plan, where);
  Arrangement a{.gpus = gpus,
                .tp = keys.number("tp", 1),
                .cp = keys.number("cp", 1),
                .pp = keys.number("pp", 1)};
  const std::int64_t model_parallel = std::int64_t{a.tp} * a.cp * a.pp;
  keys.expect(
      gpus % model_parallel == 0,
      [&] {
        return fmt::format("tp x cp x pp = {} does not divide {} GPUs", model_parallel, gpus);
      },
      "choose lengths whose product divides the GPUs");
  a.dp = keys.number("dp", static_cast<int>(gpus / model_parallel));
  take_experts(a, model, keys);
  a.stages_first = keys.name("order", {orders[0], orders[1]}) == orders[1];
  keys.expect(
      !a.stages_first || model.experts.count == 0,
      [&] { return fmt::format("order {} with experts", orders[1]); },
      fmt::format("their exchanges are known for {} only", orders[0]));
  a.zero_stage = keys.number("zero", 0, 0, 3);
  a.virtual_stages = keys.number("virtual_stages", 1, 1, most_virtual_stages);
  a.schedule = schedule_of(keys.name("schedule", schedule_names()), a.virtual_stages);
  if (const int own = find_schedule(a.schedule).virtual_stages; own > 1) a.virtual_stages = own;
  a.micro_batch_size = keys.integer("micro_batch_size", 1);
  a.sequence_length = keys.integer("sequence_length", std::max<std::int64_t>(1, model.context));
  a.global_batch =
      keys.integer("global_batch", a.micro_batch_size * a.dp, 1, std::int64_t{1} << 32);
  a.recompute = recompute_from_name(keys.name("recompute", {"none", "selective", "full"}));
  a.sequence_parallel = keys.flag("sequence_parallel") && a.tp > 1;
  keys.name("dtype", {"bf16", "fp16", "f16"});
  a.fp8_gemms = keys.name("gemm_dtype", {"bf16", "fp16", "f16", "fp8"}) == "fp8";
  a.tensor_overlap = keys.flag("tp_overlap") && a.tp > 1;
  a.layers_per_stage = keys.integers("layers_per_stage");
  const bool ends_count = keys.flag("ends_count_as_layers");
  keys.expect(
      a.stages() <= model.layers + (ends_count ? 2 : 0),
      [&] { return fmt::format("{} stages of {} layers", a.stages(), model.layers); },
      "a stage needs a layer or an end of the model");
  if (a.layers_per_stage.empty()) divide_layers(a, model.layers, ends_count);
  check_shapes(a, model, keys);
  const ScheduleEntry& entry = find_schedule(a.schedule);
  try {
    keys.expect(
        complete(entry, a.shape()).virtual_stages == a.virtual_stages,
        [&] { return fmt::format("{} with {} virtual stages", a.schedule, a.virtual_stages); },
        "this schedule has another number of stages on each rank");
    if (entry.check && a.pp > 1) entry.check(a.shape());
  } catch (const Error& error) {
    require(false, fmt::format("{}: {}", where, error.message()), error.context().hint);
  }
  return a;
}

}  // namespace lockstep
