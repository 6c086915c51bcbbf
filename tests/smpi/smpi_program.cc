// Our algorithms on simulated MPI: runs one all-reduce under SimGrid's smpirun, and prints its
// simulated time. The transport has only blocking messages, because polling costs simulated time.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

class SmpiTransfer final : public Transfer {
 public:
  explicit SmpiTransfer(Slice into, std::optional<ReduceOp> op)
      : into_(into), op_(op), arrived_(op ? static_cast<std::size_t>(into.bytes()) : 0) {}
  void* memory() { return op_ ? arrived_.data() : into_.data; }
  MPI_Request* request() { return &request_; }
  void wait() override {
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
    if (op_)
      into_.device->reduce(into_, {arrived_.data(), into_.count, into_.dtype, nullptr}, *op_);
    op_.reset();
  }

 private:
  Slice into_;
  std::optional<ReduceOp> op_;
  std::vector<std::byte> arrived_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class SmpiTransport final : public Transport,
                            public FailureBoard,
                            public Network,
                            public RankClock {
 public:
  SmpiTransport() : Transport({.clock = this, .failures = this, .network = this}) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  std::string_view name() const override { return "smpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Request isend(const Call&, Slice data, int to) override {
    auto transfer = std::make_unique<SmpiTransfer>(data, std::nullopt);
    MPI_Isend(data.data, static_cast<int>(data.bytes()), MPI_BYTE, to, 0, MPI_COMM_WORLD,
              transfer->request());
    return transfer;
  }
  Request irecv(const Call&, Slice data, int from) override {
    return receive(data, from, std::nullopt);
  }
  Request irecv_reduce(const Call&, Slice growing, int from, ReduceOp op) override {
    return receive(growing, from, op);
  }
  std::size_t wait_any(const Call&, std::span<const Request>, std::span<const int>) override {
    std::abort();
  }
  std::unique_ptr<Transport> subgroup(std::span<const int>) override { std::abort(); }
  TwoEnds two_ends() override { std::abort(); }
  bool abort(const std::exception&) override { return MPI_Abort(MPI_COMM_WORLD, 1) == MPI_SUCCESS; }
  void depart() override {}
  void abandon() override {}
  Stop stopper() override { return {}; }
  int ranks_per_node() const override { return 1; }
  void advance(double) override { std::abort(); }
  double now_seconds() const override { return MPI_Wtime(); }

 private:
  static Request receive(Slice into, int from, std::optional<ReduceOp> op) {
    auto transfer = std::make_unique<SmpiTransfer>(into, op);
    MPI_Irecv(transfer->memory(), static_cast<int>(into.bytes()), MPI_BYTE, from, 0, MPI_COMM_WORLD,
              transfer->request());
    return transfer;
  }

  int rank_ = 0, size_ = 1;
};

// Prints the simulated seconds of one all-reduce of `count` f32, or that its result is wrong.
int run(const char* algorithm, Count count) {
  Communicator comm(std::make_unique<SmpiTransport>());
  std::vector<float> data(static_cast<std::size_t>(count), static_cast<float>(comm.rank()));
  // All begin at the same simulated time; after a barrier some would begin earlier than others.
  const double begin = MPI_Wtime();
  all_reduce(comm, host_slice(std::span(data)), ReduceOp::sum, algorithm);
  double seconds = MPI_Wtime() - begin, slowest = 0;
  MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  const float sum = static_cast<float>(comm.size() * (comm.size() - 1) / 2);
  for (const float value : data)
    if (value != sum) return fmt::print("wrong on rank {}\n", comm.rank()), 1;
  if (comm.rank() == 0) fmt::print("{:.12g}\n", slowest);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status = argc == 3 ? lockstep::run(argv[1], std::atoll(argv[2])) : 2;
  MPI_Finalize();
  return status;
}
