#include "parallel/data/ddp.h"

#include <optional>

#include "collectives/broadcast/broadcast.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "parallel/data/bucket_sums.h"
#include "parallel/rank/first_weights.h"

namespace lockstep {
namespace {

constexpr int communication_track = 1;

std::vector<Bucket> buckets_of(const Plan& plan, const Parameters& parameters) {
  return make_buckets(parameters, plan.options.first_bucket_bytes, plan.options.bucket_bytes);
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
    sums_.emplace(plan, parameters, queue_.buckets(), communicator(), parameters.gradients());
  }

  void take_matrices(const WholeMatrices& matrices) override {
    if (sums_) sums_->take_projectors(matrices);
  }
  void load(const std::function<void()>& read) override {
    if (replicas_.rank() == 0) read();
    // Without data there is nothing to send.
    if (!has_data(context_.ledger)) return;
    replicas_.set_label("weights");
    broadcast(replicas_, parameters_.values());
    replicas_.set_label("gradients");
  }

  void begin(double loss_scale) override {
    if (sums_) sums_->begin(loss_scale);
    parameters_.zero_gradients();
    in_flight_.clear();
    queue_.begin();
  }

  void skip() override {
    if (sums_) sums_->skip();
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
    TrainingState state{.optimizers = {optimizer_.get()},
                        .parameters = &parameters_,
                        .copies = replicas_.size(),
                        .copy = replicas_.rank()};
    if (sums_) state.add_own("kept", sums_->kept());
    return state;
  }

  void take_restored() override { steps_before_ = optimizer_->steps(); }

  FlatBuffer flat(Gathered what) override { return {flat_of(parameters_, what)}; }

  double waiting_seconds() const override { return exposed_.seconds(); }
  double communication_seconds() const override {
    return stream_ ? stream_->busy_seconds() : exposed_.seconds();
  }
  ReplicaFacts facts() const override {
    ReplicaFacts facts{.ranks_per_node = replicas_.ranks_per_node(),
                       .steps = ReplicaFacts::Steps{steps_before_, optimizer_->steps()}};
    if (sums_) facts.algorithms = sums_->algorithms();
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

  void reduce(Communicator& comm, std::size_t bucket) {
    sums_->run(comm, bucket, view(queue_.buckets()[bucket]), optimizer_->steps());
  }

  RankContext& context_;
  Communicator& replicas_;
  Parameters& parameters_;
  Backend& backend_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t steps_before_ = 0;  // this run
  BucketQueue queue_;
  std::optional<BucketSums> sums_;  // none without other replicas
  std::vector<Stream::Handle> in_flight_;
  Stopwatch exposed_;
  std::optional<Stream> stream_;
};

}  // namespace

std::unique_ptr<DataParallel> make_ddp(RankContext& context, Communicator& replicas,
                                       const Plan& plan, Parameters& parameters, Backend& backend) {
  return std::make_unique<Ddp>(context, replicas, plan, parameters, backend);
}

Terms ddp_terms(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                const ReplicaFacts& facts, Moment moment) {
  Terms terms{.part = PlanPart::gradients};
  if (replicas.copies == 1) return terms;
  add_bucket_sums(terms, plan, replicas, parameters, facts,
                  use_in_every_step(plan, buckets_of(plan, parameters), facts), moment);
  return terms;
}

}  // namespace lockstep
