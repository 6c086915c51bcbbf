#include "collectives/transport/nccl/rank.h"

#include <fmt/format.h>

#include "collectives/base/cuda_module.h"
#include "collectives/transport/nccl/ask.h"

namespace lockstep {

NcclRank::NcclRank(Transport& control, Device& gpu, double timeout_s)
    : gpu_(gpu),
      gpu_number_(cuda_stream(gpu).gpu),
      rank_(control.rank()),
      size_(control.size()),
      failure_(rank_, size_, timeout_s),
      ends_(control.two_ends()),
      from_(static_cast<std::size_t>(size_)),
      to_(static_cast<std::size_t>(size_)),
      service_([this] { serve(); }) {}

NcclRank::~NcclRank() {
  const bool finished = ends_service_.load();
  if (!finished) fail(Error(ErrorKind::lost_rank, "this rank gives up"));
  ends_service_ = true;
  service_ = {};
  use_gpu();
}

void NcclRank::finish() {
  gpu_.synchronize();
  for (Channel& channel : to_)
    if (channel.stream)
      cuda::check(cudaStreamSynchronize(channel.stream->get()), "wait for a stream");
  failure_.check();
  ends_service_ = true;
}

cudaStream_t NcclRank::stream() {
  use_gpu();
  return static_cast<cudaStream_t>(cuda_stream(gpu_).stream);
}

// The CUDA runtime keeps the current GPU per thread; every thread of this rank uses the same one.
void NcclRank::use_gpu() {
  thread_local int current = -1;
  if (current == gpu_number_) return;
  cuda::check(cudaSetDevice(gpu_number_), "use the rank's GPU");
  current = gpu_number_;
}

std::shared_ptr<ExposedData> NcclRank::expose(Slice data) {
  failure_.check();
  const cudaStream_t stream = this->stream();
  auto exposed = std::make_shared<ExposedData>();
  exposed->data = data;
  if (data.device->enqueues()) exposed->written.record(stream);
  const std::lock_guard lock(mutex_);
  exposed->number = next_exposed_++;
  exposed_[exposed->number] = exposed;
  return exposed;
}

void NcclRank::wait(ExposedData& exposed, const Call& call, int to) {
  {
    WaitedTime waited;
    std::unique_lock lock(mutex_);
    constexpr auto between_looks = std::chrono::milliseconds(50);
    while (!exposed.answered) {
      answered_.wait_for(lock, between_looks);
      failure_.check();
      if (waited.look() > failure_.timeout_s() && !exposed.answered)
        throw Error(ErrorKind::timeout,
                    fmt::format("timed out: rank {} has not requested the data of this rank", to),
                    {.rank = rank_,
                     .size = size_,
                     .failed_rank = to,
                     .peer = to,
                     .sequence = call.signature.sequence,
                     .operation = fmt::format("{} over nccl", name_of(call.signature.operation)),
                     .hint = "raise --timeout if it is only slow"});
    }
  }
  if (exposed.data.device->enqueues()) exposed.read.stream_wait(stream());
}

void NcclRank::withdraw(const ExposedData& exposed) {
  const std::lock_guard lock(mutex_);
  exposed_.erase(exposed.number);
}

std::shared_ptr<ExposedData> NcclRank::claim(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = exposed_.find(number);
  if (found == exposed_.end())
    throw Error(ErrorKind::lost_rank, "a rank requested a message that its sender has withdrawn",
                {.rank = rank_, .size = size_});
  auto exposed = found->second;
  exposed_.erase(found);
  return exposed;
}

void NcclRank::fetch(int from, std::int64_t number, Slice into) {
  failure_.check();
  if (from == rank_) return fetch_own(number, into);
  into.device->enqueues() ? fetch_from_gpu(from, number, into)
                          : fetch_from_host(from, number, into);
}

void NcclRank::fetch_from_host(int from, std::int64_t number, Slice into) {
  Ask ask{.number = number, .connects = 0, .id = {}};
  const Slice bytes{into.data, into.bytes(), DType::u8, &host_device()};
  const std::lock_guard one_at_a_time(asking_);
  ends_[0]->isend(asking(sizeof ask), bytes_of(ask), size_ + from)->wait();
  ends_[0]->irecv(call_of(bytes.count), bytes, size_ + from)->wait();
}

void NcclRank::fetch_from_gpu(int from, std::int64_t number, Slice into) {
  Channel& channel = from_[static_cast<std::size_t>(from)];
  // Receives run in the order of requests.
  const std::lock_guard lock(channel.mutex);
  Ask ask{.number = number, .connects = channel.comm ? 0 : 1, .id = {}};
  if (!channel.comm) check_nccl(failure_, ncclGetUniqueId(&ask.id), "begin to connect");
  {
    const std::lock_guard one_at_a_time(asking_);
    ends_[0]->isend(asking(sizeof ask), bytes_of(ask), size_ + from)->wait();
  }
  const cudaStream_t stream = this->stream();
  if (!channel.comm) channel.comm = make_comm(ask.id, 2, 1);
  channel.comm->call("receive", [&](ncclComm_t comm) {
    return ncclRecv(into.data, static_cast<std::size_t>(into.bytes()), ncclInt8, 0, comm, stream);
  });
  expect_end(stream, fmt::format("a message of {} bytes from rank {}", into.bytes(), from));
}

void NcclRank::fetch_own(std::int64_t number, Slice into) {
  const auto exposed = claim(number);
  const bool on_gpu = into.device->enqueues();
  const cudaStream_t stream = this->stream();
  if (on_gpu) exposed->written.stream_wait(stream);
  into.device->copy(into, exposed->data);
  if (on_gpu) exposed->read.record(stream);
  const std::lock_guard lock(mutex_);
  exposed->answered = true;
  answered_.notify_all();
}

std::shared_ptr<NcclComm> NcclRank::connect(Transport& group) {
  use_gpu();
  ncclUniqueId id{};
  const Call call = call_of(sizeof id);
  if (group.rank() == 0) {
    check_nccl(failure_, ncclGetUniqueId(&id), "begin to connect");
    std::vector<Request> sent;
    for (int other = 1; other < group.size(); ++other)
      sent.push_back(group.isend(call, bytes_of(id), other));
    for (const Request& request : sent) request->wait();
  } else {
    group.irecv(call, bytes_of(id), 0)->wait();
  }
  return make_comm(id, group.size(), group.rank());
}

std::shared_ptr<NcclComm> NcclRank::make_comm(const ncclUniqueId& id, int size, int rank) {
  auto comm = std::make_shared<NcclComm>(failure_, id, size, rank);
  const std::lock_guard lock(mutex_);
  std::erase_if(comms_, [](const auto& other) { return other.expired(); });
  comms_.push_back(comm);
  return comm;
}

void NcclRank::expect_end(cudaStream_t stream, std::string what) {
  Expected expected{{}, 0, std::move(what)};
  expected.event.record(stream);
  const std::lock_guard lock(mutex_);
  expected.deadline = running_.seconds() + failure_.timeout_s();
  expected_.push_back(std::move(expected));
}

}  // namespace lockstep
