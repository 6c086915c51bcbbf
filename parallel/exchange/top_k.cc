#include "parallel/exchange/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
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

// Bits are in the order of magnitudes, and put NaN before all others.
template <typename T>
auto magnitude_bits(T x) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return std::bit_cast<Bits>(std::abs(x));
}

// The places of the k largest magnitudes, in their order; of equal ones the first. Counts numbers by the
// first bits of their magnitudes, so that only those that share them with the last one are compared.
template <typename T>
std::vector<std::int32_t> places_of_largest(std::span<const T> all, Count k) {
  constexpr int kinds = 4096, shift = sizeof(T) * 8 - 1 - 12;
  const auto kind = [&](std::size_t i) { return magnitude_bits(all[i]) >> shift; };
  std::array<Count, kinds> counts{};
  for (std::size_t i = 0; i < all.size(); ++i) ++counts[kind(i)];
  std::size_t last = kinds - 1;
  Count above = 0;  // numbers of kinds above the last one
  while (last > 0 && above + counts[last] < k) above += counts[last--];
  std::vector<std::int32_t> places, candidates;
  places.reserve(static_cast<std::size_t>(k));
  candidates.reserve(static_cast<std::size_t>(counts[last]));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (kind(i) >= last)
      (kind(i) > last ? places : candidates).push_back(static_cast<std::int32_t>(i));
  const auto is_before = [&](std::int32_t a, std::int32_t b) {
    const auto of_a = magnitude_bits(all[static_cast<std::size_t>(a)]),
               of_b = magnitude_bits(all[static_cast<std::size_t>(b)]);
    return of_a > of_b || (of_a == of_b && a < b);
  };
  const auto end = candidates.begin() + (k - above);
  std::ranges::nth_element(candidates, end, is_before);
  places.insert(places.end(), candidates.begin(), end);
  std::ranges::sort(places);
  return places;
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
  std::vector<Slice> all_kept() const override {
    std::vector<Slice> all;
    for (std::size_t number = 0; number < kept_.size(); ++number) all.push_back(kept(number).own);
    return all;
  }

 private:
  // The k largest of what was kept and the gradients, all values before all places; keeps the rest.
  void choose(std::span<const T> gradients, std::size_t number, Count k, std::byte* out) {
    const std::span<T> all = host_span<T>(kept(number).own);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += gradients[i];
    const std::vector<std::int32_t> places = places_of_largest<T>(all, k);
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

ExchangeMemory top_k_memory(double share, DType dtype, const std::vector<ExchangedBucket>& buckets,
                            int ranks) {
  Count kept = 0, most = 0;
  for (const ExchangedBucket& bucket : buckets) {
    kept += bucket.range.count;
    most = std::max(most, kept_numbers(share, bucket.range.count));
  }
  return {.kept = kept * element_bytes(dtype), .work = ranks * most * entry_bytes(dtype)};
}

}  // namespace lockstep
