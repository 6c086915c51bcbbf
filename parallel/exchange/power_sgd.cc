#include "parallel/exchange/power_sgd.h"

#include <algorithm>
#include <cmath>

#include "collectives/all_reduce/all_reduce.h"
#include "models/random.h"

namespace lockstep {
namespace {

// A matrix [m, q] of a bucket; its place in the bucket, and that of its m R and q R numbers among those
// of all matrices.
struct Narrowed {
  Count m = 0, q = 0, at = 0, p_at = 0, q_at = 0;
};

// What a bucket sends: narrow matrices one after the other, and the rest of its elements.
struct PowerSgdLayout {
  std::vector<Narrowed> matrices;
  std::vector<Range> rest;
  Count p = 0, q = 0, others = 0, largest = 0;

  PowerSgdLayout(Count rank, const ExchangedBucket& bucket) {
    for (const Parameter& parameter : bucket.parameters) {
      const Count columns = parameter.shape.back(), rows = parameter.count / columns;
      if (parameter.shape.size() < 2 || 2 * (rows + columns) * rank >= rows * columns) {
        rest.push_back({parameter.offset, parameter.count});
        others += parameter.count;
        continue;
      }
      matrices.push_back({rows, columns, parameter.offset, p, q});
      p += rows * rank;
      q += columns * rank;
      largest = std::max(largest, parameter.count);
    }
  }
};

template <typename T>
class PowerSgd final : public CompressedSum {
 public:
  PowerSgd(Count rank, const std::vector<ExchangedBucket>& buckets, Communicator& comm,
           Device& device)
      : rank_(rank), device_(device) {
    for (const ExchangedBucket& bucket : buckets) {
      State& state = states_.emplace_back(State{.layout = {rank, bucket}});
      const auto numbers = [&](Count count) {
        Memory memory = comm.scratch({.dtype = dtype_of<T>(), .device = &device}, count);
        device.zero(memory.slice(count, dtype_of<T>()));
        return memory;
      };
      state.kept = numbers(bucket.range.count);
      state.q = numbers(state.layout.q);
      most_p_ = std::max(most_p_, state.layout.p);
      most_others_ = std::max(most_others_, state.layout.others);
      if (!device.stores()) continue;
      for (const Narrowed& matrix : state.layout.matrices)
        for (Count r = 0; r < rank; ++r) begin_column(matrix, r, view(state.q, state.layout.q));
    }
    p_ = comm.scratch({.dtype = dtype_of<T>(), .device = &device}, most_p_);
    others_ = comm.scratch({.dtype = dtype_of<T>(), .device = &device}, most_others_);
  }

  void run(Communicator& comm, std::size_t number, Slice gradients) override {
    State& state = states_[number];
    const PowerSgdLayout& layout = state.layout;
    const Slice p = p_.slice(layout.p, dtype_of<T>()), q = state.q.slice(layout.q, dtype_of<T>()),
                others = others_.slice(layout.others, dtype_of<T>());
    const bool has_data = device_.stores();
    const std::span<T> all = has_data ? host_span<T>(gradients) : std::span<T>{},
                       kept = has_data ? host_span<T>(this->kept(number).own) : std::span<T>{};
    if (has_data) begin(layout, all, kept, host_span<T>(others));
    sum(comm, others);
    for (const Narrowed& matrix : layout.matrices)
      if (has_data) multiply(matrix, all, host_span<T>(q), host_span<T>(p));
    sum(comm, p);
    for (const Narrowed& matrix : layout.matrices)
      if (has_data) {
        orthonormalize(matrix, host_span<T>(p));
        multiply_transposed(matrix, all, host_span<T>(p), host_span<T>(q));
      }
    sum(comm, q);
    if (has_data) {
      end(layout, all, kept, host_span<T>(others), host_span<T>(p), host_span<T>(q), comm.size());
      for (const Narrowed& matrix : layout.matrices)
        begin_lost_columns(matrix, host_span<T>(p), host_span<T>(q));
    }
    comm.announce(Operation::all_reduce, gradients, gradients);
  }

  Kept kept(std::size_t number) const override {
    const Memory& memory = states_[number].kept;
    return {.own = memory.slice(memory.bytes() / static_cast<Count>(sizeof(T)), dtype_of<T>()),
            .chunk = {}};
  }

 private:
  static constexpr std::uint64_t random_seed = 1909;
  struct State {
    PowerSgdLayout layout;
    Memory kept = {}, q = {};
  };
  static std::size_t at(Count place) { return static_cast<std::size_t>(place); }
  static std::span<T> view(const Memory& memory, Count count) {
    return host_span<T>(memory.slice(count, dtype_of<T>()));
  }
  static void sum(Communicator& comm, Slice numbers) {
    if (numbers.count > 0) all_reduce(comm, numbers, ReduceOp::sum);
  }

  // Matrices become M; the rest is packed.
  static void begin(const PowerSgdLayout& layout, std::span<T> all, std::span<const T> kept,
                    std::span<T> others) {
    for (const Narrowed& matrix : layout.matrices)
      for (Count i = matrix.at; i < matrix.at + matrix.m * matrix.q; ++i) all[at(i)] += kept[at(i)];
    auto into = others.begin();
    for (const auto& [first, count] : layout.rest)
      into = std::copy_n(all.begin() + first, count, into);
  }

  // P = M Q
  void multiply(const Narrowed& matrix, std::span<const T> all, std::span<const T> q,
                std::span<T> p) const {
    for (Count i = 0; i < matrix.m; ++i)
      for (Count r = 0; r < rank_; ++r) {
        T product = 0;
        for (Count j = 0; j < matrix.q; ++j)
          product += all[at(matrix.at + i * matrix.q + j)] * q[at(matrix.q_at + r * matrix.q + j)];
        p[at(matrix.p_at + r * matrix.m + i)] = product;
      }
  }

  static T norm_of(std::span<const T> x) {
    T squares = 0;
    for (const T each : x) squares += each * each;
    return std::sqrt(squares);
  }

  // Gram-Schmidt, column by column. A column that depends on those before it becomes zero.
  void orthonormalize(const Narrowed& matrix, std::span<T> p) const {
    constexpr T nothing = sizeof(T) == 8 ? static_cast<T>(1e-10) : static_cast<T>(1e-5);
    for (Count r = 0; r < rank_; ++r) {
      const std::span<T> column = p.subspan(at(matrix.p_at + r * matrix.m), at(matrix.m));
      const T whole = norm_of(column);
      for (Count s = 0; s < r; ++s) {
        const std::span<const T> before = p.subspan(at(matrix.p_at + s * matrix.m), at(matrix.m));
        T product = 0;
        for (std::size_t i = 0; i < column.size(); ++i) product += column[i] * before[i];
        for (std::size_t i = 0; i < column.size(); ++i) column[i] -= product * before[i];
      }
      const T norm = norm_of(column);
      const T factor = norm > nothing * whole ? T{1} / norm : T{0};
      for (T& x : column) x *= factor;
    }
  }

  // Random numbers for column r of a matrix's Q, the same on all ranks.
  void begin_column(const Narrowed& matrix, Count r, std::span<T> q) const {
    for (Count j = 0; j < matrix.q; ++j)
      q[at(matrix.q_at + r * matrix.q + j)] =
          static_cast<T>(random_normal(random_seed, matrix.q_at + r, j));
  }
  // A column of zeros would stay so for ever: it begins anew.
  void begin_lost_columns(const Narrowed& matrix, std::span<const T> p, std::span<T> q) const {
    for (Count r = 0; r < rank_; ++r)
      if (norm_of(p.subspan(at(matrix.p_at + r * matrix.m), at(matrix.m))) == 0)
        begin_column(matrix, r, q);
  }

  // Q = M^T P
  void multiply_transposed(const Narrowed& matrix, std::span<const T> all, std::span<const T> p,
                           std::span<T> q) const {
    for (Count r = 0; r < rank_; ++r)
      for (Count j = 0; j < matrix.q; ++j) q[at(matrix.q_at + r * matrix.q + j)] = 0;
    for (Count r = 0; r < rank_; ++r)
      for (Count i = 0; i < matrix.m; ++i) {
        const T factor = p[at(matrix.p_at + r * matrix.m + i)];
        for (Count j = 0; j < matrix.q; ++j)
          q[at(matrix.q_at + r * matrix.q + j)] += factor * all[at(matrix.at + i * matrix.q + j)];
      }
  }

  void end(const PowerSgdLayout& layout, std::span<T> all, std::span<T> kept,
           std::span<const T> others, std::span<const T> p, std::span<const T> q, int ranks) const {
    for (const Narrowed& matrix : layout.matrices)
      for (Count i = 0; i < matrix.m; ++i)
        for (Count j = 0; j < matrix.q; ++j) {
          T result = 0;
          for (Count r = 0; r < rank_; ++r)
            result += p[at(matrix.p_at + r * matrix.m + i)] * q[at(matrix.q_at + r * matrix.q + j)];
          const Count place = matrix.at + i * matrix.q + j;
          kept[at(place)] = all[at(place)] - result / static_cast<T>(ranks);
          all[at(place)] = result;
        }
    auto from = others.begin();
    for (const auto& [first, count] : layout.rest) {
      std::copy_n(from, count, all.begin() + first);
      from += count;
    }
  }

  const Count rank_;
  Device& device_;
  std::vector<State> states_;  // by bucket
  Count most_p_ = 0, most_others_ = 0;
  Memory p_, others_;
};

}  // namespace

std::unique_ptr<CompressedSum> make_power_sgd(Count rank, DType dtype,
                                              const std::vector<ExchangedBucket>& buckets,
                                              Communicator& comm, Device& device) {
  if (dtype == DType::f64) return std::make_unique<PowerSgd<double>>(rank, buckets, comm, device);
  return std::make_unique<PowerSgd<float>>(rank, buckets, comm, device);
}

Traffic power_sgd_traffic(Count matrix_rank, DType dtype, const ExchangedBucket& bucket, int ranks,
                          int rank) {
  const PowerSgdLayout layout(matrix_rank, bucket);
  Traffic traffic;
  for (const Count count : {layout.others, layout.p, layout.q})
    if (count > 0)
      traffic +=
          find_algorithm(all_reduce_algorithms(), "all_reduce", "ring")
              .traffic({.ranks = ranks, .count = count, .element_bytes = element_bytes(dtype)},
                       rank);
  return {traffic.sent_messages, traffic.sent_elements * element_bytes(dtype),
          traffic.received_messages, traffic.received_elements * element_bytes(dtype)};
}

Count power_sgd_scratch_bytes(Count matrix_rank, DType dtype, const ExchangedBucket& bucket,
                              int ranks, int rank) {
  const PowerSgdLayout layout(matrix_rank, bucket);
  const auto scratch = find_algorithm(all_reduce_algorithms(), "all_reduce", "ring").scratch;
  const Count most = std::max({layout.others, layout.p, layout.q});
  return scratch ? scratch({.ranks = ranks, .count = most}, rank) * element_bytes(dtype) : 0;
}

Count power_sgd_memory_bytes(Count matrix_rank, DType dtype,
                             const std::vector<ExchangedBucket>& buckets) {
  Count kept = 0, p = 0, others = 0;
  for (const ExchangedBucket& bucket : buckets) {
    const PowerSgdLayout layout(matrix_rank, bucket);
    kept += bucket.range.count + layout.q;
    p = std::max(p, layout.p);
    others = std::max(others, layout.others);
  }
  return (kept + p + others) * element_bytes(dtype);
}

}  // namespace lockstep
