// Compares the ways in which replicas sum their gradients (train --exchange) and, with fsdp, gather their
// parameters (--gather). The exchanges of a step take what processors do, encoding, decoding and adding
// up, measured here in time of one core; and what messages take, in virtual time. Both run the code of
// ddp or fsdp without overlap. Bytes and messages must equal their closed forms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/options.h"

namespace lockstep {

struct ExchangeBenchOptions {
  TrainOptions train = [] {
    TrainOptions options;
    options.technique = "ddp";
    options.steps = 100;
    options.validation_fraction = 0.05;
    options.threads = 1;
    return options;
  }();
  // With fsdp, the method of gathers may follow: "qgz:4+int8".
  std::vector<std::string> methods = {"none",   "bf16",    "int8",      "mxfp8",
                                      "onebit", "signsgd", "topk:0.01", "powersgd:2"};
  std::vector<int> ranks = {4};
  std::vector<std::string> links = {"alpha=10us,beta=125MB/s", "alpha=10us,beta=1.25GB/s",
                                    "alpha=10us,beta=12.5GB/s", "alpha=10us,beta=100GB/s"};
  int repetitions = 5;
  // Bytes of gradients that a processor encodes, decodes and adds up in a second; measured if not given.
  std::optional<double> encoding_rate;
  int seeds = 3;  // of trainings
};

struct ExchangePoint {
  std::string method, link;
  int ranks = 1;
  // Of a rank, and of the slowest one.
  std::int64_t gradient_bytes = 0, message_bytes = 0, messages = 0;
  double processor_seconds = 0, link_seconds = 0;
  std::string skipped;  // the reason if there are no figures

  double seconds() const { return processor_seconds + link_seconds; }
};

// Over links of this latency a method is faster than none below a bandwidth; without one, over all links
// or none. The time of messages is a straight line over the time of a byte.
struct ExchangeCrossover {
  std::string method;
  int ranks = 1;
  double latency_seconds = 0;
  bool is_faster = false;
  std::optional<double> bytes_per_second = {};
};

struct ExchangeBench {
  std::vector<ExchangePoint> points;
  std::vector<ExchangeCrossover> crossovers;  // where links have no nodes
};

// The options with a method of the list.
TrainOptions exchanging(TrainOptions train, const std::string& method);

// Prints a line for each point. Throws Error: bad_input for unknown names, wrong_result if a count differs
// from its closed form.
ExchangeBench bench_exchange(const ExchangeBenchOptions& options);

// Trainings with one method, each with another seed: all have the same steps and data.
struct ExchangeTraining {
  std::string method;
  int ranks = 1;
  std::int64_t sent_bytes = 0;  // by rank 0 for the gradients and parameters of a step
  // Of the first step's gradients: the distance between those of none and the closest multiple of these,
  // over the norm of those of none. A multiple, because signs have no size.
  double error = 0;
  std::vector<std::vector<double>> losses;  // by seed, by step
  std::vector<double> validation_losses;    // by seed, after the last step
  std::string skipped;
};

// With the first number of ranks. Prints a line for each method.
std::vector<ExchangeTraining> train_exchanges(const ExchangeBenchOptions& options);

// As Google Benchmark's JSON.
std::string exchange_json(const ExchangeBench& bench,
                          const std::vector<ExchangeTraining>& trainings,
                          const ExchangeBenchOptions& options);

}  // namespace lockstep
