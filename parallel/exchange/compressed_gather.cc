#include "parallel/exchange/compressed_gather.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/all_gather/all_gather.h"
#include "collectives/base/error.h"
#include "models/ops/narrow_types.h"
#include "parallel/exchange/codec.h"

namespace lockstep {
namespace {

Count largest_chunk(std::span<const Range> chunks) {
  return std::ranges::max(chunks, {}, &Range::count).count;
}

template <typename T>
class EncodedGather final : public CompressedGather {
 public:
  EncodedGather(std::string_view codec, DType dtype, std::span<const Range> largest,
                Communicator& comm, Device& device)
      : name_(codec), codec_(make_codec<T>(codec)), device_(device) {
    codes_ = comm.scratch({.dtype = DType::u8, .device = &device}, gathered_bytes(codec, largest));
    if (is_narrow(dtype))
      wide_ = comm.scratch({.dtype = dtype_of<T>(), .device = &device}, largest_chunk(largest));
  }

  void run(Communicator& comm, Slice numbers, std::span<const Range> chunks,
           std::string_view algorithm) override {
    const Slice codes = codes_.slice(gathered_bytes(name_, chunks), DType::u8);
    const Count each = codes.count / comm.size();
    const Range own = chunks[static_cast<std::size_t>(comm.rank())];
    const Slice own_numbers = numbers.part(own.first, own.count);
    // Without data, only messages travel.
    const bool has_data = device_.stores();
    if (has_data) encode(own_numbers, codes.data + comm.rank() * each);
    all_gather(comm, codes, algorithm);
    comm.announce(Operation::all_gather, own_numbers, numbers);
    for (std::size_t rank = 0; has_data && rank < chunks.size(); ++rank)
      decode(codes.data + static_cast<Count>(rank) * each,
             numbers.part(chunks[rank].first, chunks[rank].count));
  }

 private:
  void encode(Slice x, std::byte* out) const {
    const Slice wide = widened(x);
    if (wide.data != x.data) device_.convert(wide, x);
    codec_->encode(host_span<T>(wide), 1, out);
  }
  // As plain memory: the result has been announced.
  void decode(const std::byte* in, Slice x) const {
    const Slice wide = widened(x);
    codec_->decode(in, host_span<T>(wide));
    if (wide.data == x.data) return;
    const auto plain = [](Slice slice) {
      slice.device = &host_device();
      return slice;
    };
    host_device().convert(plain(x), plain(wide));
  }
  Slice widened(Slice x) const {
    return x.dtype == dtype_of<T>() ? x : wide_.slice(x.count, dtype_of<T>());
  }

  const std::string name_;
  std::unique_ptr<Codec<T>> codec_;
  Device& device_;
  Memory codes_, wide_;
};

}  // namespace

std::unique_ptr<CompressedGather> make_compressed_gather(std::string_view codec, DType dtype,
                                                         std::span<const Range> largest,
                                                         Communicator& comm, Device& device) {
  require(!device.enqueues(), fmt::format("--gather {} in the memory of a GPU", codec),
          "parameters are encoded by the processor: use --device host, or --gather whole");
  if (dtype == DType::f64)
    return std::make_unique<EncodedGather<double>>(codec, dtype, largest, comm, device);
  return std::make_unique<EncodedGather<float>>(codec, dtype, largest, comm, device);
}

Count gathered_bytes(std::string_view codec, std::span<const Range> chunks) {
  return std::ssize(chunks) * encoded_bytes(codec, largest_chunk(chunks));
}

Count gather_memory_bytes(std::string_view codec, DType dtype, std::span<const Range> largest) {
  const Count wide = is_narrow(dtype) ? largest_chunk(largest) : 0;
  return gathered_bytes(codec, largest) + wide * element_bytes(statistics_type(dtype));
}

}  // namespace lockstep
