#include "parallel/rank/training.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "collectives/all_reduce/all_reduce.h"
#include "models/data/documents.h"
#include "models/gpt/sample.h"
#include "models/gpt/weights.h"
#include "parallel/plan/context_split.h"
#include "parallel/rank/report.h"
#include "parallel/rank/router_balance.h"

namespace lockstep {
namespace {

bool all_finite(Slice values) {
  constexpr Count at_once = 4096;
  std::vector<double> numbers(static_cast<std::size_t>(std::min(at_once, values.count)));
  for (Count begin = 0; begin < values.count; begin += at_once) {
    const Slice part = values.part(begin, std::min(at_once, values.count - begin));
    const std::span<double> here(numbers.data(), static_cast<std::size_t>(part.count));
    part.device->convert(host_slice(here), part);
    if (!std::ranges::all_of(here, [](double number) { return std::isfinite(number); }))
      return false;
  }
  return true;
}

}  // namespace

Training::Training(RankContext& context, const Plan& plan, std::unique_ptr<Backend> backend)
    : context_(context),
      plan_(plan),
      dataset_(plan.options.data, plan.model.vocabulary, plan.options.validation_fraction,
               plan.options.documents),
      sampling_{.order = plan.options.order == "sequential" ? Order::sequential : Order::random,
                .global_batch = plan.options.global_batch,
                .length = plan.tokens_of_sequence(),
                .seed = plan.options.seed},
      backend_(std::move(backend)) {}

void Training::check_data() const {
  std::vector<RowRange> parts;
  // Workers that take their steps alone have their own losses.
  for (int rank = 0; plan_.is_asynchronous() && rank < plan_.ranks; ++rank)
    if (plan_.computes(rank)) parts.push_back({plan_.share(rank).first, plan_.share(rank).count});
  if (parts.empty()) parts = {{0, plan_.options.global_batch}};
  dataset_.check_steps(sampling_, plan_.options.steps, parts);
  if (plan_.options.validation_fraction > 0) dataset_.check_validation(plan_.tokens_of_sequence());
  if (plan_.options.sample > 0) check_prompt(plan_.options.prompt, plan_.model.vocabulary);
}

Batch Training::batch(int step, const Share& share) const {
  return dataset_.batch(sampling_, step, share.first, share.count,
                        plan_.layout(context_.world.rank()));
}

std::vector<Batch> Training::micro_batches(int step) const {
  const int parts = plan_.options.micro_batches;
  const Share share = plan_.share(context_.world.rank());
  std::vector<Batch> batches;
  for (int m = 0; computes() && m < parts; ++m)
    batches.push_back(batch(step, share.part(m, parts)));
  return batches;
}

Count Training::targets(int step) const {
  if (!plan_.options.documents) return plan_.tokens_per_step();
  return std::max(Count{1}, dataset_.targets(sampling_, step));
}

std::vector<Count> Training::pairs_of_groups(int step, const Share& share,
                                             const TokenLayout& layout) const {
  std::vector<Count> pairs(static_cast<std::size_t>(layout.ranks));
  for (int m = 0; m < plan_.options.micro_batches; ++m) {
    const Share rows = share.part(m, plan_.options.micro_batches);
    std::vector<std::vector<Count>> sequences;
    for (int row = rows.first; row < rows.first + rows.count; ++row)
      sequences.push_back(dataset_.document_lengths(sampling_, step, row));
    std::vector<std::vector<int>> orders;
    if (layout.balanced) orders = balanced_orders(sequences, layout.ranks);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<Count> packed = sequences[i];
      if (layout.balanced)
        std::ranges::transform(orders[i], packed.begin(),
                               [&](int document) { return sequences[i][document]; });
      std::ranges::transform(pairs, pairs_of_ranks(packed, layout.order, layout.ranks),
                             pairs.begin(), std::plus());
    }
  }
  return pairs;
}

Prediction Training::prediction_of(const TrainingRank& rank, const CountedStep& counted) const {
  Prediction prediction = rank.prediction();
  if (counted.skipped) {
    prediction.total.reset();
    prediction.traffic.clear();
    prediction.offload.reset();
  }
  if (!plan_.options.documents || !prediction.attention_pairs) return prediction;
  const int here = context_.world.rank();
  const TokenLayout layout = plan_.layout(here);
  prediction.attention_pairs = {
      .value = pairs_of_groups(counted.step, plan_.share(here), layout)[layout.rank] *
               prediction.attentions,
      .formula = "places of the queries in their documents * heads * layers"};
  return prediction;
}

std::vector<LayoutRecord> Training::compare_layouts(int step) const {
  std::vector<LayoutRecord> records;
  for (const char* name : {"contiguous", "zig-zag", "striped", "balanced"}) {
    TokenLayout layout = plan_.layout(0);
    layout.order = token_order_from_name(name);
    layout.balanced = name == std::string_view("balanced");
    const bool fits =
        layout.order != TokenOrder::zig_zag || plan_.tokens_of_sequence() % (2 * layout.ranks) == 0;
    if (!fits) continue;
    LayoutRecord& record = records.emplace_back(name, std::vector<Count>(layout.ranks));
    const int replicas = plan_.sequence_groups();
    for (int replica = 0; replica < replicas; ++replica) {
      const Share share = Share{.count = plan_.options.global_batch}.part(replica, replicas);
      std::ranges::transform(record.pairs, pairs_of_groups(step, share, layout),
                             record.pairs.begin(), std::plus());
    }
  }
  return records;
}

void Training::evaluate(TrainingRank& rank, int steps_taken) {
  if (plan_.options.validation_fraction <= 0) return;
  result_.validation.push_back({.step = steps_taken, .loss = validation_loss(rank)});
  check_finite(result_.validation.back(), context_.world);
}

double Training::validation_loss(TrainingRank& rank) {
  const Trace::Span span(context_.trace, 0, "validation", "compute");
  const int replicas = plan_.sequence_groups(), length = plan_.tokens_of_sequence();
  const int rows_at_once = plan_.validated_at_once();
  const int rows = dataset_.validation_sequences(length);
  double sum = 0;
  // Replicas take blocks of rows in turn; the ranks of one replica take the same rows. A replica
  // without rows left computes the first ones again, because the others may gather its shards.
  if (computes())
    for (int round = 0; round < rows; round += replicas * rows_at_once) {
      const int own = round + plan_.sequence_group(context_.world.rank()) * rows_at_once;
      const int first = own < rows ? own : 0;
      const double loss =
          rank.loss_sum(dataset_.validation_batch(first, std::min(rows_at_once, rows - first),
                                                  length, plan_.layout(context_.world.rank())));
      if (own < rows) sum += loss;
    }
  return over_ranks(sum, ReduceOp::sum) / static_cast<double>(dataset_.validation_targets(length));
}

double Training::over_ranks(double value, ReduceOp op) {
  context_.world.set_label(report_label);
  all_reduce(context_.world, host_slice(std::span(&value, 1)), op);
  return value;
}

void Training::add_routing(StepRecord& record, const RoutingTotals& own) {
  const ExpertConfig& experts = plan_.model.experts;
  if (!experts.exist()) return;
  // Sums of the losses, choices and entropies, and then the tokens of each layer's experts.
  std::vector<double> sums = {own.balance, own.z, static_cast<double>(own.dropped),
                              static_cast<double>(own.chosen), own.entropy};
  const auto first = std::ssize(sums);
  for (int layer = 0; layer < plan_.model.layers; ++layer) {
    if (!experts.in_layer(layer)) continue;
    const auto here = own.tokens.find(layer);
    if (here != own.tokens.end())
      sums.insert(sums.end(), here->second.begin(), here->second.end());
    else
      sums.resize(sums.size() + static_cast<std::size_t>(experts.number));
  }
  context_.world.set_label(report_label);
  all_reduce(context_.world, host_slice(std::span(sums)), ReduceOp::sum);
  record.aux_loss = sums[0] / plan_.options.global_batch;
  if (experts.z_loss > 0)
    record.router_z_loss = sums[1] / static_cast<double>(plan_.tokens_per_step());
  record.dropped_share = sums[2] / sums[3];
  const auto layers = static_cast<double>((std::ssize(sums) - first) / experts.number);
  record.router_entropy = sums[4] / (layers * static_cast<double>(plan_.tokens_per_step()));
  for (auto next = sums.begin() + first; next != sums.end(); next += experts.number)
    record.tokens_of_experts.emplace_back(next, next + experts.number);
}

double Training::rate(double seconds) const {
  return seconds > 0 ? static_cast<double>(plan_.tokens_per_step()) / seconds : 0;
}

void Training::report(TrainingRank& rank, const PipelineRecord& pipeline, const OwnTimes& own_times,
                      const CountedStep& counted) {
  RankRecord record = record_of(context_, counted);
  record.in_flight = pipeline.in_flight;
  record.busy_seconds = own_times.busy_seconds();
  record.site = site_of(&context_.ledger);
  record.own = own_times.mean();
  record.waited_for = longest_waits(context_.world);
  record.exposed_communication_seconds = rank.exposed_seconds();
  record.hidden_communication_seconds =
      std::max(0.0, rank.communication_seconds() - rank.exposed_seconds());
  collect(context_, record, theory_of(prediction_of(rank, counted), record), result_);

  if (!plan_.options.save.empty()) save(rank);
  if (plan_.options.sample > 0) sample(rank);
  if (context_.world.rank() != 0) return;
  if (plan_.options.documents && plan_.layout(0).ranks > 1)
    result_.layouts = compare_layouts(counted.step);
  result_.bubble = pipeline.bubble;
  result_.transport = context_.world.transport().name();
  result_.world_size = context_.world.size();
  result_.threads_per_rank = omp_get_max_threads();
  result_.parameters = plan_.model.parameter_count();
  result_.tokens_per_step = plan_.tokens_per_step();
  result_.unigram_entropy = dataset_.unigram_entropy();
}

void Training::save(TrainingRank& rank) {
  const std::vector<Parameter> whole = whole_parameters(plan_.model);
  std::optional<WeightsFile> file;
  if (context_.world.rank() == 0)
    file.emplace(plan_.options.save, whole, plan_.options.dtype, plan_.model);
  rank.gather(Gathered::values, [&](const Parameters& part, Slice values) {
    if (!all_finite(values))
      throw Error(ErrorKind::wrong_result,
                  fmt::format("the final weights are not all finite: {} is not written",
                              plan_.options.save),
                  {.rank = context_.world.rank(),
                   .size = context_.world.size(),
                   .hint = "lower --lr, add --warmup-steps or set --grad-clip"});
    file->write(part, values);
  });
  for (const auto& [layer, bias] : all_biases(context_.world, plan_.model.experts, rank.routers()))
    file->write_bias(layer, bias);
  if (file) file->finish();
}

// Only here does a rank hold the whole model; it takes one sequence through it.
void Training::sample(TrainingRank& rank) {
  const TrainOptions& o = plan_.options;
  std::optional<Gpt> whole;
  std::vector<std::byte> memory;
  Slice values;
  if (context_.world.rank() == 0) {
    whole.emplace(plan_.model, *backend_, o.dtype, context_.ledger);
    const Slice own = whole->parameters().values();
    memory.resize(static_cast<std::size_t>(own.bytes()));
    values = {memory.data(), own.count, own.dtype, &host_device()};
  }
  rank.gather(Gathered::values, [&](const Parameters& part, Slice theirs) {
    const std::vector<Parameter>& list = whole->parameters().list();
    for_each_counted_run(part, list,
                         [&](std::size_t parameter, Count in_whole, Count in_part, Count count) {
                           const Slice into = values.part(list[parameter].offset + in_whole, count);
                           into.device->copy(into, theirs.part(in_part, count));
                         });
  });
  const RouterBiases biases = all_biases(context_.world, plan_.model.experts, rank.routers());
  if (!whole) return;
  set_biases(whole->routers(), biases);
  const Slice own = whole->parameters().values();
  own.device->copy(own, values);
  result_.sample = sample_text(*whole, o.prompt, o.sample, 0.8, o.seed);
}

}  // namespace lockstep
