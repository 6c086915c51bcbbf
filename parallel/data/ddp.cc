#include "parallel/data/ddp.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "parallel/data/bucket.h"
#include "parallel/pace.h"

namespace lockstep {
namespace {

constexpr int communication_track = 1;

class Ddp final : public Technique {
 public:
  Ddp(RankContext& context, Gpt& model, const TrainOptions& options)
      : context_(context),
        model_(model),
        options_(options),
        pace_(context.world, options),
        optimizer_(model.parameters(),
                   {options.beta1, options.beta2, options.eps, options.weight_decay},
                   context.ledger),
        queue_(model.parameters(),
               make_buckets(model.parameters(), options.first_bucket_bytes, options.bucket_bytes)) {
    if (options.overlap) stream_.emplace(context.world, communication_track, "communication");
    communicator().set_label("gradients");
    for (const Bucket& bucket : queue_.buckets())
      algorithms_.push_back(&usable_algorithm(all_reduce_algorithms(), Operation::all_reduce,
                                              options.algorithm, communicator(), view(bucket)));
    reduce_dtype_ = options.reduce_dtype.value_or(options.dtype);
    if (reduce_dtype_ == options.dtype) return;
    Count largest = 0;
    for (const Bucket& bucket : queue_.buckets()) largest = std::max(largest, bucket.count);
    rounded_ = communicator().scratch(
        {.dtype = reduce_dtype_, .device = model.parameters().gradients().device}, largest);
  }

  void prepare() override {
    context_.world.set_label("weights");
    broadcast(context_.world, model_.parameters().values());
    context_.world.set_label(stream_ ? "" : "gradients");
  }

  Share share(int global_batch) const override {
    return Share{.count = global_batch}.part(context_.world.rank(), context_.world.size());
  }

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    model_.parameters().zero_gradients();
    double loss = 0;
    // Only the last micro-batch completes the gradients; before it there is nothing to exchange.
    for (const Batch& batch : micro_batches.first(micro_batches.size() - 1))
      loss += pace_.forward_backward(model_, batch, total_targets, loss_scale);
    in_flight_.clear();
    queue_.begin();
    loss += pace_.forward_backward(model_, micro_batches.back(), total_targets, loss_scale,
                                   [&](int i) { ready(i); });

    wait_for_all();
    queue_.rebuild();
    return loss;
  }

  // Every rank holds the same gradients now.
  double gradient_norm() override {
    return std::sqrt(squared_norm(model_.parameters().gradients()));
  }
  double loss_sum(const Batch& batch) override { return model_.loss_sum(batch); }
  void update(double learning_rate, double gradient_scale) override {
    optimizer_.step(learning_rate, gradient_scale);
  }
  double exposed_seconds() const override { return exposed_.seconds(); }
  double communication_seconds() const override {
    return stream_ ? stream_->busy_seconds() : exposed_.seconds();
  }

  std::vector<TheoryRecord> theory() const override {
    const int rank = context_.world.rank(), ranks = context_.world.size();
    const Count element = element_bytes(reduce_dtype_);
    std::vector<TheoryRecord> lines = replicated_states(rank, model_.parameters());
    lines.push_back(
        whole_model_activations(rank, model_, options_, share(options_.global_batch), ranks));
    Traffic sum;
    bool all_rings = true;
    for (std::size_t b = 0; b < queue_.buckets().size(); ++b) {
      // Of a library's own all-reduce we see no messages.
      if (!algorithms_[b]->traffic) return lines;
      sum += algorithms_[b]->traffic({.ranks = ranks,
                                      .count = queue_.buckets()[b].count,
                                      .element_bytes = element,
                                      .ranks_per_node = context_.world.ranks_per_node()},
                                     rank);
      all_rings = all_rings && algorithms_[b]->name == "ring";
    }
    const bool own_type = reduce_dtype_ == model_.parameters().dtype();
    const std::string beta = own_type ? "beta" : std::to_string(element);
    const std::string by_bucket =
        fmt::format("all_reduce/{}, by bucket", algorithms_.front()->name);
    const TheoryRecord traffic[] = {
        {.quantity = "sent_bytes",
         .rank = rank,
         .formula = all_rings ? fmt::format("2(P-1)/P * Psi * {}", beta) : by_bucket,
         .expected = static_cast<double>(sum.sent_elements * element)},
        {.quantity = "sent_messages",
         .rank = rank,
         .formula = all_rings ? "2(P-1) * buckets" : by_bucket,
         .expected = static_cast<double>(sum.sent_messages)}};
    lines.insert(lines.begin(), std::begin(traffic), std::end(traffic));
    return lines;
  }

 private:
  Communicator& communicator() { return stream_ ? stream_->communicator() : context_.world; }
  Slice view(const Bucket& bucket) {
    return model_.parameters().gradients().part(bucket.offset, bucket.count);
  }

  void ready(int parameter) {
    for (const std::size_t bucket : queue_.ready(parameter))
      if (stream_)
        in_flight_.push_back(
            stream_->enqueue([this, bucket](Communicator& comm) { reduce(comm, bucket); }));
  }

  void reduce(Communicator& comm, std::size_t bucket) {
    const Slice gradients = view(queue_.buckets()[bucket]);
    const std::string_view algorithm = algorithms_[bucket]->name;
    if (reduce_dtype_ == gradients.dtype)
      return all_reduce(comm, gradients, ReduceOp::sum, algorithm);
    // Buckets are reduced one after another, so they share the memory for what is rounded.
    const Slice rounded = rounded_.slice(gradients.count, reduce_dtype_);
    gradients.device->convert(rounded, gradients);
    all_reduce(comm, rounded, ReduceOp::sum, algorithm);
    gradients.device->convert(gradients, rounded);
  }

  void wait_for_all() {
    const Trace::Span span(context_.trace, 0, "wait for gradients", "wait");
    exposed_.time([&] {
      if (!stream_)
        for (const std::size_t bucket : queue_.order()) reduce(context_.world, bucket);
      for (Stream::Handle& handle : in_flight_) handle.wait();
    });
  }

  RankContext& context_;
  Gpt& model_;
  const TrainOptions& options_;
  Pace pace_;
  AdamW optimizer_;
  BucketQueue queue_;
  std::vector<const AllReduceAlgorithm*> algorithms_;  // by bucket
  DType reduce_dtype_ = DType::f32;
  Memory rounded_;  // gradients of a bucket in another type than their own
  std::vector<Stream::Handle> in_flight_;
  Stopwatch exposed_{context_.world};
  std::optional<Stream> stream_;
};

}  // namespace

void check_ddp(const TrainOptions& options, int ranks) {
  require(!options.reduce_dtype || is_floating(*options.reduce_dtype),
          fmt::format("--reduce-dtype {}", name_of(options.reduce_dtype.value_or(DType::f32))),
          "choose f64, f32, bf16 or f16");
  if (options.algorithm != "auto")
    find_algorithm(all_reduce_algorithms(), name_of(Operation::all_reduce), options.algorithm);
  check_shares(options, ranks);
}

std::unique_ptr<Technique> make_ddp(RankContext& context, Gpt& model, const TrainOptions& options) {
  return std::make_unique<Ddp>(context, model, options);
}

}  // namespace lockstep
