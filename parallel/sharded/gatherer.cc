#include "parallel/sharded/gatherer.h"

#include <utility>

namespace lockstep {
namespace {

constexpr const char* parameters_label = "parameters";

}  // namespace

ParameterGatherer::ParameterGatherer(Communicator& shards, Communicator* group, const Plan& plan,
                                     const Sharding& sharding, std::deque<ShardedUnit>& units,
                                     const ShardedUnit& largest, BufferPool& buffers,
                                     Offload* offload, Stream* stream, Stopwatch& exposed)
    : shards_(shards),
      group_(group),
      sharding_(sharding),
      units_(units),
      buffers_(buffers),
      offload_(offload),
      stream_(stream),
      exposed_(exposed),
      gathers_(units.size()) {
  if (plan.compresses_parameters() && shards.size() > 1)
    compressed_ =
        make_compressed_gather(plan.options.gather, plan.options.dtype, largest.chunks(),
                               stream ? stream->communicator() : shards, buffers.device());
  if (!group || !stream) return;
  group_of_stream_.emplace(group->duplicate(stream->communicator().track()));
  group_ = &*group_of_stream_;
}

void ParameterGatherer::gather(std::size_t unit, bool in_group) {
  ShardedUnit& gathered = units_[unit];
  gathered.begin_gather(buffers_, in_group);
  std::optional<Tier::Handle> read;
  if (offload_ && offload_->holds_parameters() && !in_group)
    read = offload_->read_values(unit, gathered.landing());
  begin(unit, [this, &gathered, in_group, read](Communicator& comm) {
    if (read) read->wait();
    Communicator& ranks = in_group ? *group_ : comm;
    ranks.set_label(parameters_label);
    gathered.gather(ranks, compressed_.get());
  });
}

void ParameterGatherer::free(std::size_t unit, bool in_group) {
  wait(unit);
  units_[unit].give_values(buffers_, in_group);
}

void ParameterGatherer::gather_updated(std::size_t unit) {
  if (sharding_.shards_parameters()) return;
  begin(unit, [&updated = units_[unit]](Communicator& comm) {
    comm.set_label(parameters_label);
    updated.gather_updated(comm);
  });
}

void ParameterGatherer::begin(std::size_t unit, const std::function<void(Communicator&)>& work) {
  Gather& gather = gathers_[unit];
  gather.is_pending = true;
  if (stream_)
    gather.handle = stream_->enqueue(work);
  else
    exposed_.time([&] { work(shards_); });
}

void ParameterGatherer::wait(std::size_t unit) {
  Gather& gather = gathers_[unit];
  if (!std::exchange(gather.is_pending, false)) return;
  if (gather.handle) {
    const Trace::Span span(shards_.records().trace, shards_.track(), "wait for parameters", "wait");
    exposed_.time([&] { gather.handle->wait(); });
    gather.handle.reset();
  }
  if (sharding_.shards_parameters()) units_[unit].end_gather(buffers_);
}

void ParameterGatherer::wait_for_all() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) wait(unit);
}

}  // namespace lockstep
