#include "parallel/exchange/compressed_scatter.h"

#include <algorithm>

#include "collectives/all_to_all_v/all_to_all_v.h"
#include "models/ops/narrow_types.h"
#include "parallel/exchange/codec.h"

namespace lockstep {
namespace {

// The bytes of each chunk that a rank sends, and of its own chunk from each rank.
struct ScatterBytes {
  std::vector<Count> to, from;
  Count sent = 0, received = 0;

  ScatterBytes(std::string_view codec, std::span<const Range> chunks, int rank) {
    const Count own = encoded_bytes(codec, chunks[static_cast<std::size_t>(rank)].count);
    for (const Range& chunk : chunks) {
      to.push_back(encoded_bytes(codec, chunk.count));
      from.push_back(own);
      sent += to.back();
      received += own;
    }
  }
};

template <typename T>
class EncodedScatter final : public CompressedScatter {
 public:
  EncodedScatter(std::string_view codec, DType dtype, std::span<const Range> largest,
                 Communicator& comm, Device& device)
      : name_(codec), codec_(make_codec<T>(codec)), device_(device) {
    const ScatterBytes bytes(codec, largest, comm.rank());
    const Slice like{.dtype = DType::u8, .device = &device};
    sent_ = comm.scratch(like, bytes.sent);
    received_ = comm.scratch(like, bytes.received);
    const Count own = largest[static_cast<std::size_t>(comm.rank())].count;
    const Count most = std::ranges::max(largest, {}, &Range::count).count;
    const Slice numbers{.dtype = dtype_of<T>(), .device = &device};
    sum_ = comm.scratch(numbers, own);
    // 16-bit numbers are widened chunk by chunk.
    decoded_ = comm.scratch(numbers, is_narrow(dtype) ? most : own);
  }

  void run(Communicator& comm, Slice numbers, std::span<const Range> chunks) override {
    const ScatterBytes bytes(name_, chunks, comm.rank());
    const Slice sent = sent_.slice(bytes.sent, DType::u8),
                received = received_.slice(bytes.received, DType::u8);
    const bool has_data = device_.stores();
    std::byte* place = sent.data;
    for (std::size_t to = 0; has_data && to < chunks.size(); ++to) {
      codec_->encode(widened(numbers.part(chunks[to].first, chunks[to].count)), 1, place);
      place += bytes.to[to];
    }
    all_to_all_v(comm, received, sent, {.in = bytes.to, .out = bytes.from});
    const Range own = chunks[static_cast<std::size_t>(comm.rank())];
    const Slice result = numbers.part(own.first, own.count);
    comm.announce(Operation::reduce_scatter, numbers, result);
    if (has_data) add_up(comm.size(), bytes.from.front(), received, result);
  }

 private:
  std::span<T> widened(Slice numbers) const {
    if (numbers.dtype == dtype_of<T>()) return host_span<T>(numbers);
    const Slice wide = decoded_.slice(numbers.count, dtype_of<T>());
    device_.convert(wide, numbers);
    return host_span<T>(wide);
  }

  // In the order of the ranks.
  void add_up(int ranks, Count bytes, Slice received, Slice result) const {
    const Slice all = sum_.slice(result.count, dtype_of<T>());
    const std::span<T> sum = host_span<T>(all),
                       decoded = host_span<T>(decoded_.slice(result.count, dtype_of<T>()));
    codec_->decode(received.data, sum);
    for (int from = 1; from < ranks; ++from) {
      codec_->decode(received.data + from * bytes, decoded);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded[i];
    }
    // As plain memory: the result has been announced.
    const auto plain = [](Slice slice) {
      slice.device = &host_device();
      return slice;
    };
    host_device().convert(plain(result), plain(all));
  }

  const std::string name_;
  std::unique_ptr<Codec<T>> codec_;
  Device& device_;
  Memory sent_, received_, sum_, decoded_;
};

}  // namespace

std::unique_ptr<CompressedScatter> make_compressed_scatter(const ExchangeMethod& method,
                                                           DType dtype,
                                                           std::span<const Range> largest,
                                                           Communicator& comm, Device& device) {
  require_host(method, device);
  if (dtype == DType::f64)
    return std::make_unique<EncodedScatter<double>>(method.codec(), dtype, largest, comm, device);
  return std::make_unique<EncodedScatter<float>>(method.codec(), dtype, largest, comm, device);
}

Traffic scatter_traffic(const ExchangeMethod& method, std::span<const Range> chunks, int rank) {
  const ScatterBytes bytes(method.codec(), chunks, rank);
  const auto others = std::ssize(chunks) - 1;
  const Count own = bytes.from.front();
  return {others, bytes.sent - own, others, bytes.received - own};
}

Count scatter_memory_bytes(const ExchangeMethod& method, DType dtype,
                           std::span<const Range> largest, int rank) {
  const ScatterBytes bytes(method.codec(), largest, rank);
  const Count own = largest[static_cast<std::size_t>(rank)].count,
              most = std::ranges::max(largest, {}, &Range::count).count;
  return bytes.sent + bytes.received +
         (own + (is_narrow(dtype) ? most : own)) * element_bytes(statistics_type(dtype));
}

}  // namespace lockstep
