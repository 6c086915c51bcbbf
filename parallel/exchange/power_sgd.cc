#include "parallel/exchange/power_sgd.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
    const auto data = [&](Slice slice) { return has_data ? host_span<T>(slice).data() : nullptr; };
    T *const all = data(gradients), *const kept = data(this->kept(number).own);
    if (has_data) begin(layout, all, kept, data(q), data(p), data(others));
    sum(comm, others);
    sum(comm, p);
    for (const Narrowed& matrix : layout.matrices)
      if (has_data) {
        orthonormalize(matrix, host_span<T>(p));
        multiply_transposed(matrix, all, data(p), data(q));
      }
    sum(comm, q);
    if (has_data) {
      end(layout, all, kept, data(others), data(p), data(q), comm.size());
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
  std::vector<Slice> all_kept() const override {
    std::vector<Slice> all;
    for (std::size_t number = 0; number < states_.size(); ++number) {
      all.push_back(kept(number).own);
      all.push_back(states_[number].q.slice(states_[number].layout.q, dtype_of<T>()));
    }
    return all;
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

  static T product_of(const T* x, const T* y, Count count) {
    T product = 0;
#pragma omp simd reduction(+ : product)
    for (Count i = 0; i < count; ++i) product += x[i] * y[i];
    return product;
  }
  static void add_multiple(T* into, T factor, const T* x, Count count) {
    for (Count i = 0; i < count; ++i) into[i] += factor * x[i];
  }

  // Matrices become M, and P = M Q; the rest is packed.
  void begin(const PowerSgdLayout& layout, T* all, const T* kept, const T* q, T* p,
             T* others) const {
    for (const Narrowed& matrix : layout.matrices)
      for (Count i = 0; i < matrix.m; ++i) {
        T* const row = all + matrix.at + i * matrix.q;
        add_multiple(row, T{1}, kept + matrix.at + i * matrix.q, matrix.q);
        for (Count r = 0; r < rank_; ++r)
          p[matrix.p_at + r * matrix.m + i] =
              product_of(row, q + matrix.q_at + r * matrix.q, matrix.q);
      }
    for (const auto& [first, count] : layout.rest) others = std::copy_n(all + first, count, others);
  }

  static T norm_of(std::span<const T> x) {
    return std::sqrt(product_of(x.data(), x.data(), std::ssize(x)));
  }

  // Gram-Schmidt, column by column. A column that depends on those before it becomes zero; one
  // whose norm overflows becomes NaN, so that it shows.
  void orthonormalize(const Narrowed& matrix, std::span<T> p) const {
    constexpr T nothing = sizeof(T) == 8 ? static_cast<T>(1e-10) : static_cast<T>(1e-5);
    for (Count r = 0; r < rank_; ++r) {
      const std::span<T> column = p.subspan(at(matrix.p_at + r * matrix.m), at(matrix.m));
      const T whole = norm_of(column);
      for (Count s = 0; s < r; ++s) {
        const std::span<const T> before = p.subspan(at(matrix.p_at + s * matrix.m), at(matrix.m));
        const T product = product_of(column.data(), before.data(), matrix.m);
        add_multiple(column.data(), -product, before.data(), matrix.m);
      }
      const T norm = norm_of(column);
      const T factor = !std::isfinite(whole)    ? std::numeric_limits<T>::quiet_NaN()
                       : norm > nothing * whole ? T{1} / norm
                                                : T{0};
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
  void multiply_transposed(const Narrowed& matrix, const T* all, const T* p, T* q) const {
    std::fill_n(q + matrix.q_at, rank_ * matrix.q, T{0});
    for (Count i = 0; i < matrix.m; ++i)
      for (Count r = 0; r < rank_; ++r)
        add_multiple(q + matrix.q_at + r * matrix.q, p[matrix.p_at + r * matrix.m + i],
                     all + matrix.at + i * matrix.q, matrix.q);
  }

  // The result P Q^T, and what it lacks; the rest is unpacked.
  void end(const PowerSgdLayout& layout, T* all, T* kept, const T* others, const T* p, const T* q,
           int ranks) const {
    const T share = T{1} / static_cast<T>(ranks);
    for (const Narrowed& matrix : layout.matrices)
      for (Count i = 0; i < matrix.m; ++i) {
        T* const row = all + matrix.at + i * matrix.q;
        T* const lacks = kept + matrix.at + i * matrix.q;
        std::copy_n(row, matrix.q, lacks);
        std::fill_n(row, matrix.q, T{0});
        for (Count r = 0; r < rank_; ++r)
          add_multiple(row, p[matrix.p_at + r * matrix.m + i], q + matrix.q_at + r * matrix.q,
                       matrix.q);
        add_multiple(lacks, -share, row, matrix.q);
      }
    for (const auto& [first, count] : layout.rest) {
      std::copy_n(others, count, all + first);
      others += count;
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

ExchangeMemory power_sgd_memory(Count matrix_rank, DType dtype,
                                const std::vector<ExchangedBucket>& buckets) {
  Count kept = 0, p = 0, others = 0;
  for (const ExchangedBucket& bucket : buckets) {
    const PowerSgdLayout layout(matrix_rank, bucket);
    kept += bucket.range.count + layout.q;
    p = std::max(p, layout.p);
    others = std::max(others, layout.others);
  }
  return {.kept = kept * element_bytes(dtype), .work = (p + others) * element_bytes(dtype)};
}

}  // namespace lockstep
