// NCCL's calls, on emulated streams. A message is transferred when both streams have reached it, and
// not before: nothing is buffered. All messages of a rank's group make progress together, as in one
// kernel. A connection is complete when all ranks have joined, and every call returns before that.
//
// LOCKSTEP_EMULATED_NCCL_FAULT=KIND:DEVICE:N plants a fault in the N-th piece of work, from 0, that
// this device enqueues from then on: `hang`, it never begins; `error`, its communicator fails
// asynchronously.
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/device.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/streams.h"

using emulator::device_mutex;

namespace {

using Signal = std::shared_ptr<EmulatedSignal>;

Signal new_signal() { return std::make_shared<EmulatedSignal>(); }

// A message from one rank to another: both sides' arguments, and its progress.
struct Message {
  const void* from = nullptr;
  std::size_t bytes = 0;
  Signal sent = new_signal(),
         received = new_signal();  // the sender has reached it; it has been copied
};

// A collective: the arguments of each rank.
struct Collective {
  explicit Collective(std::size_t ranks) : from(ranks), come(ranks), read(ranks) {
    for (std::size_t i = 0; i < ranks; ++i) come[i] = new_signal(), read[i] = new_signal();
  }
  std::vector<const void*> from;
  std::vector<Signal> come, read;
};

// Shared by the ranks of a communicator.
struct World {
  std::vector<int> devices;  // of ranks that have joined; -1 for others
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Message>>> messages;
  std::vector<std::shared_ptr<Collective>> collectives;

  bool complete() const {
    for (const int device : devices)
      if (device < 0) return false;
    return true;
  }
  std::shared_ptr<Message> message(int from, int to, std::size_t number) {
    auto& all = messages[{from, to}];
    while (all.size() <= number) all.push_back(std::make_shared<Message>());
    return all[number];
  }
  std::shared_ptr<Collective> collective(std::size_t number) {
    while (collectives.size() <= number)
      collectives.push_back(std::make_shared<Collective>(devices.size()));
    return collectives[number];
  }
};

std::map<std::string, std::shared_ptr<World>>& worlds() {
  static auto& all = *new std::map<std::string, std::shared_ptr<World>>;
  return all;
}

thread_local std::string last_error;

ncclResult_t fail(ncclResult_t result, std::string why) {
  last_error = std::move(why);
  return result;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0, device = 0;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
  ncclResult_t failed = ncclSuccess;
  bool finalized = false;
  std::map<int, std::size_t> sent, received;  // messages, by peer
  std::size_t collectives = 0;
  Signal last;  // the end of the work enqueued last
};

namespace {

// Work in a stream: the parts of a whole group, which run concurrently.
struct Work {
  ncclComm_t comm;
  cudaStream_t stream;
  std::function<void()> come;  // called when the stream has reached it
  struct Part {
    Signal waits_for;
    std::function<void()> run;
  };
  std::vector<Part> parts;
  Signal last;  // to wait for after all parts of the group
};

thread_local int group_depth = 0;
thread_local std::vector<Work> group;
thread_local ncclResult_t group_result = ncclSuccess;

enum class Fault { none, hang, error };

// The fault planted for the work that this device enqueues now.
Fault fault(int device) {
  static auto& enqueued = *new std::map<int, int>;
  static auto& counted_for = *new std::string;
  const char* const text = std::getenv("LOCKSTEP_EMULATED_NCCL_FAULT");
  if (!text) return Fault::none;
  if (std::exchange(counted_for, text) != text) enqueued.clear();
  const int number = enqueued[device]++;
  char kind[8] = {};
  int of_device = 0, at = 0;
  if (std::sscanf(text, "%7[a-z]:%d:%d", kind, &of_device, &at) != 3 || of_device != device ||
      at != number)
    return Fault::none;
  return std::string(kind) == "hang" ? Fault::hang : Fault::error;
}

void launch(const std::vector<Work>& works) {
  const auto put = [](const Work& work, std::function<void()> run, Signal waits_for) {
    const auto unless_aborted = [aborted = work.comm->aborted, run = std::move(run)] {
      if (!*aborted) run();
    };
    emulator::enqueue(work.stream, unless_aborted, std::move(waits_for), work.comm->aborted);
  };
  for (const Work& work : works) {
    ncclComm& comm = *work.comm;
    // One piece of work at a time per communicator, on whatever stream.
    if (comm.last)
      put(
          work, [] {}, comm.last);
    const Fault planted = fault(comm.device);
    if (planted == Fault::hang)
      put(
          work, [] {}, new_signal());
    if (planted == Fault::error) comm.failed = ncclRemoteError;
    put(work, work.come, nullptr);
  }
  for (const Work& work : works)
    for (const Work::Part& part : work.parts) put(work, part.run, part.waits_for);
  for (const Work& work : works)
    if (work.last)
      put(
          work, [] {}, work.last);
  for (const Work& work : works) {
    const Signal end = new_signal();
    end->stream = work.stream;
    work.comm->last = end;
    emulator::enqueue(work.stream, [end] { end->reached = true; });
  }
}

ncclResult_t add(Work work) {
  if (*work.comm->aborted) return fail(ncclInvalidUsage, "the communicator was aborted");
  if (work.stream->device != work.comm->device)
    return fail(ncclInvalidArgument, "the stream is another device's");
  group.push_back(std::move(work));
  if (group_depth > 0) return ncclSuccess;
  ++group_depth;
  return ncclGroupEnd();
}

// In a group, its end returns the first fault.
ncclResult_t checked(ncclResult_t result) {
  if (group_depth > 0 && group_result == ncclSuccess) group_result = result;
  return result;
}

constexpr lockstep::DType dtypes[] = {
    lockstep::DType::i8,  lockstep::DType::u8,   lockstep::DType::i32,    lockstep::DType::u32,
    lockstep::DType::i64, lockstep::DType::u64,  lockstep::DType::f16,    lockstep::DType::f32,
    lockstep::DType::f64, lockstep::DType::bf16, lockstep::DType::f8e4m3, lockstep::DType::f8e5m2};

lockstep::Slice slice(const void* data, std::size_t count, ncclDataType_t type) {
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return {bytes, static_cast<lockstep::Count>(count), dtypes[type], &lockstep::host_device()};
}

std::size_t bytes_of(std::size_t count, ncclDataType_t type) {
  return static_cast<std::size_t>(slice(nullptr, count, type).bytes());
}

ncclResult_t check_memory(const ncclComm& comm, const void* memory, std::size_t bytes) {
  if (emulator::device_of(memory, bytes) == comm.device) return ncclSuccess;
  return fail(ncclInvalidArgument, "memory that is not the communicator's device's");
}

// Each rank computes its own result from all ranks' data, and writes it when all have read.
ncclResult_t collect(const void* from, std::size_t from_bytes, void* into, std::size_t into_bytes,
                     ncclComm_t comm, cudaStream_t stream,
                     std::function<void(const std::vector<const void*>&, std::byte*)> combine) {
  const std::lock_guard lock(device_mutex());
  if (const ncclResult_t result = check_memory(*comm, from, from_bytes)) return checked(result);
  if (into_bytes > 0)
    if (const ncclResult_t result = check_memory(*comm, into, into_bytes)) return checked(result);
  const auto collective = comm->world->collective(comm->collectives++);
  const auto rank = static_cast<std::size_t>(comm->rank);
  collective->from[rank] = from;
  collective->come[rank]->stream = collective->read[rank]->stream = stream;
  Work work{comm, stream, [collective, rank] { collective->come[rank]->reached = true; }, {}, {}};
  for (const Signal& come : collective->come) work.parts.push_back({come, [] {}});
  const auto result = std::make_shared<std::vector<std::byte>>(into_bytes);
  work.parts.push_back({nullptr, [=, combine = std::move(combine)] {
                          combine(collective->from, result->data());
                          collective->read[rank]->reached = true;
                        }});
  for (const Signal& read : collective->read) work.parts.push_back({read, [] {}});
  work.parts.push_back({nullptr, [=] {
                          if (into_bytes > 0) std::memcpy(into, result->data(), into_bytes);
                        }});
  return checked(add(std::move(work)));
}

// Combines elements [begin, begin + count) of all ranks, in order.
void reduce_into(std::byte* into, const std::vector<const void*>& from, std::size_t begin,
                 std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
  constexpr lockstep::ReduceOp ops[] = {lockstep::ReduceOp::sum, lockstep::ReduceOp::prod,
                                        lockstep::ReduceOp::max, lockstep::ReduceOp::min,
                                        lockstep::ReduceOp::avg};
  lockstep::Device& host = lockstep::host_device();
  const lockstep::Slice sum = slice(into, count, type);
  const auto part = [&](const void* data) {
    return slice(data, begin + count, type)
        .part(static_cast<lockstep::Count>(begin), static_cast<lockstep::Count>(count));
  };
  host.copy(sum, part(from[0]));
  for (std::size_t i = 1; i < from.size(); ++i) host.reduce(sum, part(from[i]), ops[op]);
  if (op == ncclAvg) host.divide(sum, std::ssize(from));
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }
ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(device_mutex());
  static int made = 0;
  std::snprintf(id->internal, sizeof id->internal, "emulated %d", made++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const std::lock_guard lock(device_mutex());
  if (config->blocking != 0) return fail(ncclInvalidArgument, "only without blocking");
  auto& world = worlds()[id.internal];
  if (!world) world = std::make_shared<World>(World{std::vector(ranks, -1), {}, {}});
  auto made = std::make_unique<ncclComm>();
  made->world = world;
  made->rank = rank;
  cudaGetDevice(&made->device);
  for (const int other : world->devices)
    if (other == made->device) {
      *comm = nullptr;
      return fail(ncclInvalidUsage, "Duplicate GPU detected");
    }
  world->devices[static_cast<std::size_t>(rank)] = made->device;
  *comm = made.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(device_mutex());
  const bool ends = !comm->finalized || !comm->last || emulator::finish(*comm->last);
  *state = comm->failed != ncclSuccess       ? comm->failed
           : comm->world->complete() && ends ? ncclSuccess
                                             : ncclInProgress;
  return ncclSuccess;
}

// Completes when all enqueued work is done.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(device_mutex());
  comm->finalized = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(device_mutex());
  if (!comm->finalized || (comm->last && !comm->last->reached)) {
    std::fprintf(stderr, "emulator: a communicator is destroyed before what it enqueued is done\n");
    std::abort();
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(device_mutex());
  *comm->aborted = true;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const std::lock_guard lock(device_mutex());
  if (--group_depth > 0) return ncclSuccess;
  const ncclResult_t result = std::exchange(group_result, ncclSuccess);
  const std::vector<Work> works = std::exchange(group, {});
  if (result != ncclSuccess) return result;
  launch(works);
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  const std::size_t bytes = bytes_of(count, type);
  if (const ncclResult_t result = check_memory(*comm, from, bytes)) return checked(result);
  const auto message = comm->world->message(comm->rank, peer, comm->sent[peer]++);
  message->from = from;
  message->bytes = bytes;
  message->sent->stream = stream;
  return checked(
      add({comm, stream, [message] { message->sent->reached = true; }, {}, message->received}));
}

ncclResult_t ncclRecv(void* into, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  const std::size_t bytes = bytes_of(count, type);
  if (const ncclResult_t result = check_memory(*comm, into, bytes)) return checked(result);
  const auto message = comm->world->message(peer, comm->rank, comm->received[peer]++);
  message->received->stream = stream;
  const auto copy = [=] {
    if (message->bytes != bytes) {
      std::fprintf(stderr, "emulator: %zu bytes are sent and %zu received\n", message->bytes,
                   bytes);
      std::abort();
    }
    std::memcpy(into, message->from, bytes);
    message->received->reached = true;
  };
  return checked(add({comm, stream, [] {}, {{message->sent, copy}}, {}}));
}

ncclResult_t ncclAllReduce(const void* from, void* into, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  return collect(from, bytes, into, bytes, comm, stream, [=](const auto& all, std::byte* result) {
    reduce_into(result, all, 0, count, type, op);
  });
}
ncclResult_t ncclReduce(const void* from, void* into, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  const bool takes = comm->rank == root;
  return collect(from, bytes, into, takes ? bytes : 0, comm, stream,
                 [=](const auto& all, std::byte* result) {
                   if (takes) reduce_into(result, all, 0, count, type, op);
                 });
}
ncclResult_t ncclReduceScatter(const void* from, void* into, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type), ranks = comm->world->devices.size();
  const std::size_t begin = static_cast<std::size_t>(comm->rank) * count;
  return collect(from, bytes * ranks, into, bytes, comm, stream,
                 [=](const auto& all, std::byte* result) {
                   reduce_into(result, all, begin, count, type, op);
                 });
}
ncclResult_t ncclAllGather(const void* from, void* into, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type), ranks = comm->world->devices.size();
  return collect(from, bytes, into, bytes * ranks, comm, stream,
                 [=](const auto& all, std::byte* result) {
                   for (std::size_t i = 0; i < all.size(); ++i)
                     std::memcpy(result + i * bytes, all[i], bytes);
                 });
}
ncclResult_t ncclBroadcast(const void* from, void* into, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  return collect(from, bytes, into, bytes, comm, stream, [=](const auto& all, std::byte* result) {
    std::memcpy(result, all[static_cast<std::size_t>(root)], bytes);
  });
}
