#include "collectives/transport/nccl/vendor.h"

#include <fmt/format.h>

#include "collectives/base/device.h"

namespace lockstep {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::i8:
      return ncclInt8;
    case DType::u8:
      return ncclUint8;
    case DType::i32:
      return ncclInt32;
    case DType::u32:
      return ncclUint32;
    case DType::i64:
      return ncclInt64;
    case DType::u64:
      return ncclUint64;
    // Since NCCL 2.24; older headers lack the names.
    case DType::f8e4m3:
      return static_cast<ncclDataType_t>(10);
    case DType::f8e5m2:
      return static_cast<ncclDataType_t>(11);
  }
  return ncclInt8;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::prod:
      return ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:
      return ncclAvg;
  }
  return ncclSum;
}

std::size_t size(Slice data) { return static_cast<std::size_t>(data.count); }

}  // namespace

std::string_view NcclCollectives::library() const {
  static const std::string name = [] {
    int version = 0;
    ncclGetVersion(&version);
    return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }();
  return name;
}

std::string NcclCollectives::lacks(Operation operation, DType dtype, Count count) const {
  if (dtype == DType::f8e4m3 || dtype == DType::f8e5m2) {
    constexpr int first_version = 22400, first_capability = 9;
    int version = 0, gpu = 0, capability = 0;
    ncclGetVersion(&version);
    if (version < first_version) return fmt::format("no {} before NCCL 2.24", name_of(dtype));
    const bool reduces = operation == Operation::all_reduce || operation == Operation::reduce ||
                         operation == Operation::reduce_scatter;
    cudaGetDevice(&gpu);
    cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, gpu);
    if (reduces && capability < first_capability)
      return fmt::format("no sums of {} before compute capability 9.0", name_of(dtype));
  }
  const bool needs_equal_chunks =
      operation == Operation::all_gather || operation == Operation::reduce_scatter;
  if (needs_equal_chunks && count % comm_.size() != 0)
    return fmt::format("no {} of unequal chunks", name_of(operation));
  if (operation == Operation::barrier) return "no barrier";
  return "";
}

void NcclCollectives::run(Operation operation, Slice data, Slice out, ReduceOp op, int root,
                          RankCounts counts) {
  require(data.device->enqueues(), "NCCL's own collectives do not work on memory of the host",
          "add --device cuda");
  const cudaStream_t stream = rank_.stream();
  comm_.call("run its own collective", [&](ncclComm_t comm) {
    return enqueue(operation, data, out, op, root, counts, comm, stream);
  });
  rank_.expect_end(stream, fmt::format("NCCL's own {}", name_of(operation)));
}

ncclResult_t NcclCollectives::enqueue(Operation operation, Slice data, Slice out, ReduceOp op,
                                      int root, RankCounts counts, ncclComm_t comm,
                                      cudaStream_t stream) const {
  const ncclDataType_t type = nccl_type(data.dtype);
  const Slice own = Chunks(data, comm_.size())[comm_.rank()];
  switch (operation) {
    case Operation::all_reduce: {
      std::byte* const result = out.device ? out.data : data.data;
      return ncclAllReduce(data.data, result, size(data), type, nccl_op(op), comm, stream);
    }
    case Operation::reduce: {
      // An average is left undivided.
      const ReduceOp kept = op == ReduceOp::avg ? ReduceOp::sum : op;
      return ncclReduce(data.data, data.data, size(data), type, nccl_op(kept), root, comm, stream);
    }
    case Operation::reduce_scatter:
      return ncclReduceScatter(data.data, own.data, size(own), type, nccl_op(op), comm, stream);
    case Operation::all_gather:
      return ncclAllGather(own.data, data.data, size(own), type, comm, stream);
    case Operation::broadcast:
      return ncclBroadcast(data.data, data.data, size(data), type, root, comm, stream);
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all:
    case Operation::all_to_all_v:
    case Operation::send_recv:
      return enqueue_messages(operation, data, out, root, counts, comm, stream);
    case Operation::barrier:
      break;
  }
  return ncclInvalidArgument;
}

ncclResult_t NcclCollectives::enqueue_messages(Operation operation, Slice data, Slice out, int root,
                                               RankCounts counts, ncclComm_t comm,
                                               cudaStream_t stream) const {
  const ncclDataType_t type = nccl_type(data.dtype);
  const int p = comm_.size(), rank = comm_.rank();
  const Chunks chunk(data, p);
  const auto send = [&](Slice part, int to) {
    if (part.count > 0) ncclSend(part.data, size(part), type, to, comm, stream);
  };
  const auto recv = [&](Slice part, int from) {
    if (part.count > 0) ncclRecv(part.data, size(part), type, from, comm, stream);
  };
  Count sent = 0, received = 0;  // by all_to_all_v so far
  ncclGroupStart();
  if (operation == Operation::send_recv) {
    send(data, (rank + 1) % p);
    recv(out, (rank + p - 1) % p);
  }
  for (int other = 0; other < p; ++other) {
    if (operation == Operation::all_to_all) {
      send(chunk[other], other);
      recv(Chunks(out, p)[other], other);
    } else if (operation == Operation::all_to_all_v) {
      send(data.part(sent, counts.in[other]), other);
      recv(out.part(received, counts.out[other]), other);
      sent += counts.in[other];
      received += counts.out[other];
    } else if (rank == root && other != root) {
      if (operation == Operation::gather) recv(chunk[other], other);
      if (operation == Operation::scatter) send(chunk[other], other);
    }
  }
  if (rank != root && operation == Operation::gather) send(chunk[rank], root);
  if (rank != root && operation == Operation::scatter) recv(chunk[rank], root);
  return ncclGroupEnd();
}

}  // namespace lockstep
