#include "parallel/exchange/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "collectives/all_gather/all_gather.h"

namespace lockstep {
namespace {

Count kept_numbers(double share, Count count) {
  return std::min(count, static_cast<Count>(std::ceil(share * static_cast<double>(count) - 1e-9)));
}

Count entry_bytes(DType dtype) {
  return element_bytes(dtype) + static_cast<Count>(sizeof(std::int32_t));
}

template <typename T>
class TopK final : public CompressedSum {
 public:
  TopK(double share, const std::vector<ExchangedBucket>& buckets, Communicator& comm,
       Device& device)
      : share_(share), device_(device) {
    Count most = 0;
    for (const ExchangedBucket& bucket : buckets) {
      most = std::max(most, kept_numbers(share, bucket.range.count));
      kept_.push_back(
          comm.scratch({.dtype = dtype_of<T>(), .device = &device}, bucket.range.count));
      device.zero(kept_.back().slice(bucket.range.count, dtype_of<T>()));
    }
    entries_ = comm.scratch({.dtype = DType::u8, .device = &device},
                            comm.size() * most * entry_bytes(dtype_of<T>()));
  }

  void run(Communicator& comm, std::size_t number, Slice gradients) override {
    const Count k = kept_numbers(share_, gradients.count), bytes = k * entry_bytes(dtype_of<T>());
    const Slice entries = entries_.slice(comm.size() * bytes, DType::u8);
    const bool has_data = device_.stores();
    if (has_data) choose(host_span<T>(gradients), number, k, entries.data + comm.rank() * bytes);
    all_gather(comm, entries);
    if (has_data) add_up(host_span<T>(gradients), k, bytes, entries);
    comm.announce(Operation::all_reduce, gradients, gradients);
  }

  Kept kept(std::size_t number) const override {
    const Memory& memory = kept_[number];
    return {.own = memory.slice(memory.bytes() / static_cast<Count>(sizeof(T)), dtype_of<T>()),
            .chunk = {}};
  }

 private:
  // The k largest of what was kept and the gradients, all values before all places; keeps the rest.
  void choose(std::span<const T> gradients, std::size_t number, Count k, std::byte* out) {
    const std::span<T> all = host_span<T>(kept(number).own);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += gradients[i];
    std::vector<std::int32_t> places(all.size());
    std::iota(places.begin(), places.end(), 0);
    // Bits are in the order of magnitudes, and put NaN before all others.
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    const auto magnitude = [&](std::int32_t place) {
      return std::bit_cast<Bits>(std::abs(all[static_cast<std::size_t>(place)]));
    };
    const auto is_before = [&](std::int32_t a, std::int32_t b) {
      const Bits of_a = magnitude(a), of_b = magnitude(b);
      return of_a > of_b || (of_a == of_b && a < b);
    };
    std::ranges::nth_element(places, places.begin() + k, is_before);
    std::sort(places.begin(), places.begin() + k);
    for (Count i = 0; i < k; ++i) {
      T& value = all[static_cast<std::size_t>(places[static_cast<std::size_t>(i)])];
      std::memcpy(out + i * static_cast<Count>(sizeof(T)), &value, sizeof(T));
      value = 0;
    }
    std::memcpy(out + k * static_cast<Count>(sizeof(T)), places.data(),
                static_cast<std::size_t>(k) * sizeof(std::int32_t));
  }

  void add_up(std::span<T> sums, Count k, Count bytes, Slice entries) const {
    std::ranges::fill(sums, T{0});
    for (const std::byte* of_rank = entries.data; of_rank < entries.data + entries.count;
         of_rank += bytes)
      for (Count i = 0; i < k; ++i) {
        T value;
        std::int32_t place;
        std::memcpy(&value, of_rank + i * static_cast<Count>(sizeof(T)), sizeof(T));
        std::memcpy(
            &place,
            of_rank + k * static_cast<Count>(sizeof(T)) + i * static_cast<Count>(sizeof(place)),
            sizeof(place));
        sums[static_cast<std::size_t>(place)] += value;
      }
  }

  double share_;
  Device& device_;
  std::vector<Memory> kept_;  // by bucket
  Memory entries_;
};

}  // namespace

std::unique_ptr<CompressedSum> make_top_k(double share, DType dtype,
                                          const std::vector<ExchangedBucket>& buckets,
                                          Communicator& comm, Device& device) {
  if (dtype == DType::f64) return std::make_unique<TopK<double>>(share, buckets, comm, device);
  return std::make_unique<TopK<float>>(share, buckets, comm, device);
}

Traffic top_k_traffic(double share, DType dtype, Count count, int ranks) {
  const Count bytes = (ranks - 1) * kept_numbers(share, count) * entry_bytes(dtype);
  return {ranks - 1, bytes, ranks - 1, bytes};
}

Count top_k_memory_bytes(double share, DType dtype, const std::vector<ExchangedBucket>& buckets,
                         int ranks) {
  Count kept = 0, most = 0;
  for (const ExchangedBucket& bucket : buckets) {
    kept += bucket.range.count;
    most = std::max(most, kept_numbers(share, bucket.range.count));
  }
  return kept * element_bytes(dtype) + ranks * most * entry_bytes(dtype);
}

}  // namespace lockstep
