#include "collectives/transport/gloo/vendor.h"

#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/transport/gloo/reduction.h"

namespace lockstep {
namespace {

// Operations that only move data move bytes, whatever the type.
std::uint8_t* bytes(Slice data) { return reinterpret_cast<std::uint8_t*>(data.data); }
std::size_t size(Slice data) { return static_cast<std::size_t>(data.bytes()); }

}  // namespace

std::string_view GlooCollectives::library() const {
  static const std::string name =
      fmt::format("gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  return name;
}

std::string GlooCollectives::lacks(Operation operation, DType dtype, Count count) const {
  using enum Operation;
  const bool reduces = operation == all_reduce || operation == reduce;
  if (context_->size == 1) return "nothing for 1 rank";
  if (operation == reduce_scatter) return "no reduce_scatter in its current interface";
  const bool has = !is_floating(dtype) || (is_trainable(dtype) && dtype != DType::bf16);
  if (reduces && !has) return fmt::format("no {}", name_of(dtype));
  if ((operation == gather || operation == scatter) && count % context_->size != 0)
    return fmt::format("no {} of unequal chunks", name_of(operation));
  return "";
}

void GlooCollectives::run(Operation operation, Slice data, Slice out, ReduceOp op, int root,
                          RankCounts counts) {
  try {
    run_unchecked(operation, data, out, op, root, counts);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorKind::lost_rank,
                fmt::format("gloo cannot run {}: {}", name_of(operation), error.what()),
                {.rank = context_->rank, .size = context_->size});
  }
}

void GlooCollectives::run_unchecked(Operation operation, Slice data, Slice out, ReduceOp op,
                                    int root, RankCounts counts) {
  switch (operation) {
    case Operation::all_reduce:
      return all_reduce(data, out, op);
    case Operation::reduce:
      return reduce(data, op, root);
    case Operation::all_gather:
      return all_gather(data);
    case Operation::broadcast: {
      gloo::BroadcastOptions options(context_);
      options.setOutput(bytes(data), size(data));
      options.setRoot(root);
      return gloo::broadcast(options);
    }
    case Operation::gather: {
      const Slice own = Chunks(data, context_->size)[context_->rank];
      gloo::GatherOptions options(context_);
      options.setInput(bytes(own), size(own));
      if (context_->rank == root) options.setOutput(bytes(data), size(data));
      options.setRoot(root);
      return gloo::gather(options);
    }
    case Operation::scatter:
      return scatter(data, root);
    case Operation::all_to_all: {
      gloo::AlltoallOptions options(context_);
      options.setInput(bytes(data), size(data));
      options.setOutput(bytes(out), size(out));
      return gloo::alltoall(options);
    }
    case Operation::all_to_all_v:
      return all_to_all_v(data, out, counts);
    case Operation::send_recv:
      return send_recv(data, out);
    case Operation::barrier: {
      gloo::BarrierOptions options(context_);
      return gloo::barrier(options);
    }
    case Operation::reduce_scatter:
      break;
  }
  require(false, fmt::format("gloo has no {}", name_of(operation)), "choose another operation");
}

void GlooCollectives::all_reduce(Slice data, Slice out, ReduceOp op) {
  const bool in_place = !out.device;
  const Slice result = in_place ? data : out;
  const auto count = static_cast<std::size_t>(data.count);
  with_gloo_type(data.dtype, [&]<typename T>(T) {
    gloo::AllreduceOptions options(context_);
    if (!in_place) options.setInput(reinterpret_cast<T*>(data.data), count);
    options.setOutput(reinterpret_cast<T*>(result.data), count);
    options.setReduceFunction(gloo_reduction<T>(op));
    gloo::allreduce(options);
  });
  if (op == ReduceOp::avg) result.device->divide(result, context_->size);
}

void GlooCollectives::reduce(Slice data, ReduceOp op, int root) {
  with_gloo_type(data.dtype, [&]<typename T>(T) {
    gloo::ReduceOptions options(context_);
    options.setOutput(reinterpret_cast<T*>(data.data), static_cast<std::size_t>(data.count));
    options.setReduceFunction(gloo_reduction<T>(op));
    options.setRoot(root);
    gloo::reduce(options);
  });
}

void GlooCollectives::all_gather(Slice data) {
  if (data.count % context_->size == 0) {
    gloo::AllgatherOptions options(context_);
    options.setOutput(bytes(data), size(data));
    return gloo::allgather(options);
  }
  std::vector<std::size_t> sizes;
  for (int i = 0; i < context_->size; ++i) sizes.push_back(size(Chunks(data, context_->size)[i]));
  gloo::AllgathervOptions options(context_);
  options.setOutput(bytes(data), sizes);
  gloo::allgatherv(options);
}

void GlooCollectives::scatter(Slice data, int root) {
  const Slice own = Chunks(data, context_->size)[context_->rank];
  gloo::ScatterOptions options(context_);
  if (context_->rank == root) {
    std::vector<std::uint8_t*> chunks;
    for (int i = 0; i < context_->size; ++i)
      chunks.push_back(bytes(Chunks(data, context_->size)[i]));
    options.setInputs(chunks, size(own));
  }
  options.setOutput(bytes(own), size(own));
  options.setRoot(root);
  gloo::scatter(options);
}

void GlooCollectives::all_to_all_v(Slice data, Slice out, RankCounts counts) {
  const auto in_bytes = [&](std::span<const Count> given) {
    std::vector<std::int64_t> each(given.begin(), given.end());
    for (std::int64_t& count : each) count *= element_bytes(data.dtype);
    return each;
  };
  gloo::AlltoallvOptions options(context_);
  options.setInput(bytes(data), in_bytes(counts.in));
  options.setOutput(bytes(out), in_bytes(counts.out));
  gloo::alltoallv(options);
}

void GlooCollectives::send_recv(Slice data, Slice out) {
  constexpr std::uint64_t slot = 1;  // gloo's collectives use much larger numbers
  const int right = (context_->rank + 1) % context_->size;
  const int left = (context_->rank + context_->size - 1) % context_->size;
  const auto sent = context_->createUnboundBuffer(data.data, size(data));
  const auto received = context_->createUnboundBuffer(out.data, size(out));
  received->recv(left, slot);
  sent->send(right, slot);
  received->waitRecv(context_->getTimeout());
  sent->waitSend(context_->getTimeout());
}

}  // namespace lockstep
