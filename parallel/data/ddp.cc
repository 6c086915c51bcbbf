#include "parallel/data/ddp.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "models/ops/narrow_types.h"
#include "parallel/data/bucket.h"
#include "parallel/data/compressed.h"
#include "parallel/plan/algorithms.h"
#include "parallel/rank/first_weights.h"
#include "parallel/rank/gradient_exchange.h"

namespace lockstep {
namespace {

constexpr int communication_track = 1;

std::vector<Bucket> buckets_of(const Plan& plan, const Parameters& parameters) {
  return make_buckets(parameters, plan.options.first_bucket_bytes, plan.options.bucket_bytes);
}

bool compresses(const Plan& plan) { return plan.compresses_gradients(); }

Count largest_count(const std::vector<Bucket>& buckets) {
  Count largest = 0;
  for (const Bucket& bucket : buckets) largest = std::max(largest, bucket.count);
  return largest;
}

class Ddp final : public DataParallel {
 public:
  Ddp(RankContext& context, Communicator& replicas, const Plan& plan, Parameters& parameters,
      Backend& backend)
      : context_(context),
        replicas_(replicas),
        parameters_(parameters),
        backend_(backend),
        optimizer_(new_optimizer(optimizer_settings(plan.options), allocated(parameters), backend,
                                 context.ledger)),
        queue_(parameters, buckets_of(plan, parameters)),
        exposed_(context.world) {
    if (replicas.size() == 1) return;
    if (plan.options.overlap) stream_.emplace(replicas, communication_track, "communication");
    communicator().set_label("gradients");
    for (const Bucket& bucket : queue_.buckets())
      algorithms_.push_back(&usable_algorithm(all_reduce_algorithms(), Operation::all_reduce,
                                              algorithm_of(plan, Operation::all_reduce),
                                              communicator(), view(bucket)));
    if (compresses(plan))
      compress(plan);
    else
      exchange_.emplace(plan, replicas.size(), communicator(), parameters.gradients(),
                        largest_count(queue_.buckets()));
  }

  void load(const std::function<void()>& read) override {
    if (replicas_.rank() == 0) read();
    // Without data there is nothing to send.
    if (!has_data(context_.ledger)) return;
    replicas_.set_label("weights");
    broadcast(replicas_, parameters_.values());
    replicas_.set_label("gradients");
  }

  void begin() override {
    parameters_.zero_gradients();
    in_flight_.clear();
    queue_.begin();
  }

  void gradient_ready(int parameter, ParameterSet) override {
    for (const std::size_t bucket : queue_.ready(parameter))
      if (stream_)
        in_flight_.push_back(
            stream_->enqueue([this, bucket](Communicator& comm) { reduce(comm, bucket); }));
  }

  void finish() override {
    if (replicas_.size() == 1) return;
    const Trace::Span span(context_.trace, 0, "wait for gradients", "wait");
    exposed_.time([&] {
      if (!stream_)
        for (const std::size_t bucket : queue_.order()) reduce(replicas_, bucket);
      for (Stream::Handle& handle : in_flight_) handle.wait();
    });
    queue_.rebuild();
  }

  // Every replica holds the same gradients.
  std::vector<Slice> own_gradients(const std::vector<Range>& ranges) override {
    std::vector<Slice> parts;
    for (const Range& range : ranges)
      parts.push_back(parameters_.gradients().part(range.first, range.count));
    return parts;
  }
  double squared_norm() override {
    double sum = 0;
    for (const Slice& part : own_gradients(parameters_.counted()))
      sum += backend_.squared_norm(part);
    return sum;
  }
  void step(double learning_rate, double gradient_scale) override {
    optimizer_->step(learning_rate, gradient_scale);
  }

  TrainingState state() override {
    return {.optimizers = {optimizer_.get()},
            .parameters = &parameters_,
            .copies = replicas_.size(),
            .copy = replicas_.rank()};
  }

  FlatBuffer flat(Gathered what) override { return {flat_of(parameters_, what)}; }

  double waiting_seconds() const override { return exposed_.seconds(); }
  double communication_seconds() const override {
    return stream_ ? stream_->busy_seconds() : exposed_.seconds();
  }
  ReplicaFacts facts() const override {
    ReplicaFacts facts{.ranks_per_node = replicas_.ranks_per_node()};
    for (const AllReduceAlgorithm* algorithm : algorithms_)
      facts.algorithms.emplace_back(algorithm->name);
    return facts;
  }

 private:
  static Parameters& allocated(Parameters& parameters) {
    parameters.allocate();
    return parameters;
  }
  Communicator& communicator() { return stream_ ? stream_->communicator() : replicas_; }
  Slice view(const Bucket& bucket) {
    return parameters_.gradients().part(bucket.offset, bucket.count);
  }

  void compress(const Plan& plan) {
    const Slice gradients = parameters_.gradients();
    const DType type = statistics_type(gradients.dtype);
    if (type != gradients.dtype)
      widened_ = communicator().scratch({.dtype = type, .device = gradients.device},
                                        largest_count(queue_.buckets()));
    compressed_ = make_compressed_sum(exchange_from_text(plan.options.exchange), type,
                                      exchanged_buckets(parameters_, queue_.buckets()),
                                      communicator(), *gradients.device);
  }

  void reduce(Communicator& comm, std::size_t bucket) {
    if (compressed_) {
      const Slice own = view(queue_.buckets()[bucket]);
      if (widened_.bytes() == 0) return compressed_->run(comm, bucket, own);
      const Slice wide = widened_.slice(own.count, statistics_type(own.dtype));
      own.device->convert(wide, own);
      compressed_->run(comm, bucket, wide);
      own.device->convert(own, wide);
      return;
    }
    exchange_->run(view(queue_.buckets()[bucket]), [&](Slice encoded) {
      all_reduce(comm, encoded, ReduceOp::sum, algorithms_[bucket]->name);
    });
  }

  RankContext& context_;
  Communicator& replicas_;
  Parameters& parameters_;
  Backend& backend_;
  std::unique_ptr<Optimizer> optimizer_;
  BucketQueue queue_;
  std::vector<const AllReduceAlgorithm*> algorithms_;  // by bucket
  std::optional<GradientExchange> exchange_;           // none without other replicas
  std::unique_ptr<CompressedSum> compressed_;          // instead, if the plan says so
  Memory widened_;                                     // 16-bit gradients of a bucket, for it
  std::vector<Stream::Handle> in_flight_;
  Stopwatch exposed_;
  std::optional<Stream> stream_;
};

}  // namespace

std::unique_ptr<DataParallel> make_ddp(RankContext& context, Communicator& replicas,
                                       const Plan& plan, Parameters& parameters, Backend& backend) {
  return std::make_unique<Ddp>(context, replicas, plan, parameters, backend);
}

namespace {

// Adds the traffic of all buckets, unless it is unknown.
void send_buckets(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                  const std::vector<Bucket>& buckets, const ReplicaFacts& facts) {
  const std::vector<std::string>& algorithms = facts.algorithms;
  Traffic sum;
  bool all_rings = true;
  std::string name = algorithm_of(plan, Operation::all_reduce);
  terms.has_unknown_traffic = true;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (!algorithms.empty()) name = algorithms[b];
    if (name == "auto") return;
    const AllReduceAlgorithm& algorithm =
        find_algorithm(all_reduce_algorithms(), "all_reduce", name);
    if (!algorithm.traffic) return;
    sum += algorithm.traffic({.ranks = replicas.copies,
                              .count = buckets[b].count,
                              .element_bytes = GradientExchange::element_bytes(plan),
                              .ranks_per_node = facts.ranks_per_node},
                             replicas.copy);
    all_rings = all_rings && name == "ring";
  }
  terms.has_unknown_traffic = false;
  terms.bytes_formula = all_rings
                            ? fmt::format("2(P-1)/P * Psi * {}",
                                          GradientExchange::element_formula(plan, replicas.copies))
                            : fmt::format("all_reduce/{}, by bucket", name);
  terms.messages_formula = all_rings ? "2(P-1) * buckets" : terms.bytes_formula;
  terms.send("gradients", sum, GradientExchange::element_bytes(plan), terms.bytes_formula);
}

Count most_scratch_bytes(const Plan& plan, const ReplicaGroup& replicas,
                         const std::vector<Bucket>& buckets,
                         const std::vector<std::string>& algorithms) {
  const std::string named = algorithm_of(plan, Operation::all_reduce);
  Count most = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string& name = algorithms.empty() ? named : algorithms[b];
    if (name == "auto") continue;
    const auto scratch = find_algorithm(all_reduce_algorithms(), "all_reduce", name).scratch;
    if (scratch)
      most = std::max(
          most, scratch({.ranks = replicas.copies, .count = buckets[b].count}, replicas.copy));
  }
  return most * GradientExchange::element_bytes(plan);
}

}  // namespace

Terms ddp_terms(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                const ReplicaFacts& facts, Moment moment) {
  Terms terms{.part = PlanPart::gradients};
  if (replicas.copies == 1) return terms;
  const std::vector<Bucket> buckets = buckets_of(plan, parameters);
  if (compresses(plan)) {
    add_compressed(terms, plan, replicas, exchanged_buckets(parameters, buckets), moment);
    return terms;
  }
  send_buckets(terms, plan, replicas, buckets, facts);
  terms.hold(
      {.use = MemoryUse::communication,
       .bytes = GradientExchange::memory_bytes(plan, replicas.copies, largest_count(buckets))});
  const Count scratch = most_scratch_bytes(plan, replicas, buckets, facts.algorithms);
  // During backward it meets other memory or not, depending on the time that a reduction takes.
  terms.hold({.use = MemoryUse::communication,
              .bytes = scratch,
              .exact = scratch == 0 || !plan.options.overlap,
              .moment = moment});
  return terms;
}

}  // namespace lockstep
