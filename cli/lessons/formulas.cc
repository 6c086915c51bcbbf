#include "cli/lessons/formulas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <random>

#include "cli/lessons/formula_values.h"
#include "cli/lessons/puzzle_values.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

using Input = FormulaInput;

const Input latency_input{"latency_us", "latency a", "us", Scale::decimal, 0.1, 1000, 2};
const Input bandwidth_input{"gb_per_s", "bandwidth 1/b", "GB/s", Scale::decimal, 0.1, 1000, 50};
const Input element_input{"element_bytes", "bytes of a number", "bytes", Scale::doubling, 2, 4, 2};

Input ranks_input(std::string_view label, double high, double at) {
  return {"ranks", label, "", Scale::whole, 2, high, at};
}

Input buffer_input(double at) {
  return {"bytes", "buffer n", "bytes", Scale::doubling, 4, 1 << 30, at};
}

std::string_view name_of(Scale scale) {
  return scale == Scale::whole ? "whole" : scale == Scale::doubling ? "doubling" : "decimal";
}

Formula message_formula() {
  return {.name = "message",
          .inputs = {buffer_input(1 << 20),
                     {"pieces", "messages it is cut into", "", Scale::doubling, 1, 4096, 1},
                     latency_input,
                     bandwidth_input},
          .outputs = {{"time", "time of all messages, one after another", "s"},
                      {"waiting", "of that, latency", "s"},
                      {"rate", "bytes a second that arrive", "bytes/s"},
                      {"half", "size of a message that reaches half of the bandwidth", "bytes"}},
          .evaluate = message_values};
}

Formula all_reduce_formula() {
  return {.name = "all_reduce",
          .inputs = {ranks_input("ranks p", 1024, 8), buffer_input(1 << 20), latency_input,
                     bandwidth_input},
          .outputs = {{"ring", "ring", "s"},
                      {"recursive_doubling", "recursive doubling", "s"},
                      {"halving_doubling", "halving and doubling", "s"},
                      {"linear", "linear", "s"},
                      {"ring_bytes", "bytes that rank 0 sends in the ring", "bytes"},
                      {"ring_messages", "messages that rank 0 sends in the ring", "messages"}},
          .evaluate = all_reduce_values};
}

Formula buckets_formula() {
  return {.name = "buckets",
          .inputs = {{"parameters", "parameters Psi", "", Scale::decimal, 1e6, 1e12, 1e9},
                     {"buckets", "buckets", "", Scale::doubling, 1, 1024, 64},
                     ranks_input("ranks P", 1024, 8),
                     element_input,
                     latency_input,
                     bandwidth_input},
          .outputs = {{"time", "time of all buckets", "s"},
                      {"last", "of that, the last bucket, which nothing hides", "s"},
                      {"sent_bytes", "bytes that rank 0 sends", "bytes"},
                      {"sent_messages", "messages that rank 0 sends", "messages"}},
          .evaluate = buckets_values};
}

Formula parameter_server_formula() {
  return {.name = "parameter_server",
          .inputs = {{"workers", "workers W", "", Scale::whole, 2, 256, 8},
                     {"servers", "servers S", "", Scale::doubling, 1, 64, 1},
                     buffer_input(1 << 28),
                     latency_input,
                     bandwidth_input},
          .outputs = {{"servers_time", "push to servers, and pull", "s"},
                      {"colocated_time", "with a server on every worker", "s"},
                      {"ring_time", "ring all-reduce among the workers", "s"},
                      {"server_bytes", "bytes through the link of a server, each way", "bytes"}},
          .evaluate = parameter_server_values};
}

Formula pipeline_formula() {
  return {
      .name = "pipeline",
      .inputs = {{"ranks", "ranks p", "", Scale::whole, 1, 64, 4},
                 {"micro_batches", "micro-batches m", "", Scale::whole, 1, 256, 8},
                 {"virtual_stages", "virtual stages v", "", Scale::whole, 1, 8, 2}},
      .outputs = {{"naive", "bubble fraction, naive", "%"},
                  {"gpipe", "bubble fraction, GPipe", "%"},
                  {"one_f_one_b", "bubble fraction, 1F1B", "%"},
                  {"interleaved", "bubble fraction, interleaved", "%"},
                  {"overhead", "bubble overhead, GPipe and 1F1B", "% of useful time"},
                  {"gpipe_held", "micro-batches that rank 0 holds, GPipe", "micro-batches"},
                  {"one_f_one_b_held", "micro-batches that rank 0 holds, 1F1B", "micro-batches"},
                  {"interleaved_held", "micro-batches that rank 0 holds, interleaved",
                   "micro-batches"}},
      .evaluate = pipeline_values};
}

Formula tensor_formula() {
  return {.name = "tensor_layer",
          .inputs = {{"ranks", "ranks t", "", Scale::doubling, 1, 64, 8},
                     {"tokens", "tokens of a micro-batch", "", Scale::doubling, 128, 65536, 2048},
                     {"width", "width C", "", Scale::doubling, 256, 16384, 4096},
                     element_input,
                     latency_input,
                     bandwidth_input},
          .outputs = {{"forward_bytes", "sent in a layer, forward", "bytes"},
                      {"backward_bytes", "backward", "bytes"},
                      {"sequence_bytes", "backward, if the sequence is also split", "bytes"},
                      {"exposed", "time of the forward pass's all-reduces", "s"}},
          .evaluate = tensor_layer_values};
}

Formula zero_formula() {
  return {.name = "zero",
          .inputs = {{"parameters", "parameters Psi", "", Scale::decimal, 1e6, 1e12, 1e10},
                     {"ranks", "ranks P", "", Scale::doubling, 1, 1024, 8},
                     element_input},
          .outputs = {{"stage_0", "states that a rank holds, DDP", "bytes"},
                      {"stage_1", "states, stage 1", "bytes"},
                      {"stage_2", "states, stage 2", "bytes"},
                      {"stage_3", "states, stage 3", "bytes"},
                      {"two_exchanges", "sent in a step, DDP and stages 1 and 2", "bytes"},
                      {"three_exchanges", "sent in a step, stage 3, at most", "bytes"}},
          .evaluate = zero_values};
}

Formula ring_attention_formula() {
  return {.name = "ring_attention",
          .inputs = {{"step", "step of the ring", "", Scale::whole, 0, 3, 0},
                     {"query", "token of the query", "", Scale::whole, 0, 7, 7}},
          .outputs = {{"block", "block of rank", ""},
                      {"first_score", "score of its first key", ""},
                      {"second_score", "score of its second key", ""},
                      {"shrink", "exp(h - h')", ""},
                      {"highest", "h", ""},
                      {"sum", "s", ""},
                      {"out", "O", ""},
                      {"log_sum_exp", "l", ""}},
          .evaluate = ring_attention_values,
          .picture = "ring"};
}

Formula ring_trip_formula() {
  return {.name = "ring_trip",
          .inputs = {{"ranks", "ranks p", "", Scale::whole, 2, 8, 4},
                     {"rank", "rank", "", Scale::whole, 0, 7, 2},
                     {"chunk", "chunk", "", Scale::whole, 0, 7, 0},
                     {"message", "messages so far", "", Scale::whole, 0, 7, 1}},
          .outputs = {{"holds", "ranks whose data are in the chunk, as bits", ""},
                      {"count", "number of these ranks", ""},
                      {"leaving", "chunk that the rank sends next", ""}},
          .evaluate = ring_trip_values};
}

Formula waiting_sends_formula() {
  return {.name = "waiting_sends",
          .inputs = {{"ranks", "ranks p", "", Scale::whole, 2, 6, 4},
                     {"order", "ranks that send first, as bits", "", Scale::whole, 0, 63, 1}},
          .outputs = {{"rounds", "rounds until all have sent", ""}},
          .evaluate = waiting_sends_values};
}

}  // namespace

std::vector<double> FormulaInput::stops() const {
  std::vector<double> stops;
  if (scale == Scale::decimal) {
    constexpr double near = 1.01;  // the limits are rounded
    for (int power = -3; power <= 15; ++power)
      for (const int digit : {1, 2, 5})
        // As the number is read from text: both sides of the comparison read the same digits.
        if (const double x = std::stod(fmt::format("{}e{}", digit, power));
            x * near >= low && x <= high * near)
          stops.push_back(x);
    return stops;
  }
  for (double x = low; x <= high; x = scale == Scale::whole ? x + 1 : 2 * x) stops.push_back(x);
  return stops;
}

const std::vector<Formula>& formulas() {
  static const std::vector<Formula> all = {
      message_formula(),   all_reduce_formula(),   buckets_formula(), parameter_server_formula(),
      pipeline_formula(),  tensor_formula(),       zero_formula(),    ring_attention_formula(),
      ring_trip_formula(), waiting_sends_formula()};
  return all;
}

const Formula& find_formula(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Formula& formula : formulas()) {
    if (formula.name == name) return formula;
    known.push_back(formula.name);
  }
  throw Error(ErrorKind::bad_input, fmt::format("there is no formula '{}' to play with", name),
              {.hint = fmt::format("choose one of {}", fmt::join(known, ", "))});
}

nlohmann::ordered_json described(const Formula& formula) {
  nlohmann::ordered_json text = {{"formula", formula.name}, {"picture", formula.picture}};
  for (const FormulaInput& input : formula.inputs)
    text["inputs"].push_back({{"name", input.name},
                              {"label", input.label},
                              {"unit", input.unit},
                              {"scale", name_of(input.scale)},
                              {"stops", input.stops()},
                              {"at", input.at}});
  for (const FormulaOutput& output : formula.outputs)
    text["outputs"].push_back(
        {{"name", output.name}, {"label", output.label}, {"unit", output.unit}});
  return text;
}

nlohmann::ordered_json table_of(const Formula& formula, int number) {
  nlohmann::ordered_json table = described(formula);
  std::mt19937_64 random(1);
  for (int i = 0; i < number; ++i) {
    nlohmann::ordered_json point;
    FormulaValues values;
    for (const FormulaInput& input : formula.inputs) {
      const std::vector<double> stops = input.stops();
      const double value = stops[random() % stops.size()];
      values.emplace(input.name, value);
      point["inputs"][std::string(input.name)] = value;
    }
    const auto found = formula.evaluate(values);
    for (std::size_t k = 0; k < found.size(); ++k)
      point["outputs"][std::string(formula.outputs[k].name)] =
          found[k] ? nlohmann::ordered_json(*found[k]) : nlohmann::ordered_json(nullptr);
    table["points"].push_back(std::move(point));
  }
  return table;
}

}  // namespace lockstep
