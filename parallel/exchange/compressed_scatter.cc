#include "parallel/exchange/compressed_scatter.h"

#include <algorithm>

#include "collectives/all_to_all_v/all_to_all_v.h"
#include "models/ops/narrow_types.h"
#include "parallel/exchange/codec.h"

namespace lockstep {
namespace {

// What a rank does in a hop: it sends each member of a group its chunks, and adds up its own.
struct ScatterHop {
  std::vector<int> members;              // in order, with this rank
  std::vector<std::vector<int>> chunks;  // that each of them adds up, in the order of their nodes
  std::size_t place = 0;                 // of this rank among the members

  const std::vector<int>& own() const { return chunks[place]; }
};

std::vector<ScatterHop> scatter_hops(const ExchangeMethod& method, int ranks, int rank,
                                     int ranks_per_node) {
  const bool by_node = method.adds_by_node() && ranks_per_node > 1 && ranks_per_node < ranks &&
                       ranks % ranks_per_node == 0;
  const int of_node = by_node ? ranks_per_node : ranks, first = rank / of_node * of_node;
  ScatterHop within{.place = static_cast<std::size_t>(rank - first)};
  for (int place = 0; place < of_node; ++place) {
    within.members.push_back(first + place);
    std::vector<int>& chunks = within.chunks.emplace_back();
    for (int chunk = place; chunk < ranks; chunk += of_node) chunks.push_back(chunk);
  }
  if (!by_node) return {within};
  ScatterHop between{.members = within.own(), .place = static_cast<std::size_t>(rank / of_node)};
  for (const int member : between.members) between.chunks.push_back({member});
  return {within, between};
}

// The bytes that a rank sends each member of a hop, and gets from each of them; with its own.
struct HopBytes {
  std::vector<Count> to, from;
  Count sent = 0, received = 0;

  HopBytes(std::string_view codec, const ScatterHop& hop, std::span<const Range> chunks) {
    for (const std::vector<int>& of_member : hop.chunks) {
      Count& bytes = to.emplace_back();
      for (const int chunk : of_member)
        bytes += encoded_bytes(codec, chunks[static_cast<std::size_t>(chunk)].count);
      sent += bytes;
    }
    from.assign(hop.members.size(), to[hop.place]);
    received = std::ssize(hop.members) * to[hop.place];
  }
};

// Bytes that are sent and received in a hop, numbers that are added up, and numbers of a chunk: the most of
// each.
struct ScatterSizes {
  Count sent = 0, received = 0, sums = 0, decoded = 0;

  ScatterSizes(const ExchangeMethod& method, DType dtype, std::span<const ScatterHop> hops,
               std::span<const Range> chunks) {
    for (const ScatterHop& hop : hops) {
      const HopBytes bytes(method.codec(), hop, chunks);
      sent = std::max(sent, bytes.sent), received = std::max(received, bytes.received);
      Count own = 0;
      for (const int chunk : hop.own()) {
        const Count count = chunks[static_cast<std::size_t>(chunk)].count;
        own += count, decoded = std::max(decoded, count);
      }
      sums = std::max(sums, own);
    }
    // 16-bit numbers are widened chunk by chunk.
    if (is_narrow(dtype)) decoded = std::ranges::max(chunks, {}, &Range::count).count;
  }
};

template <typename T>
class EncodedScatter final : public CompressedScatter {
 public:
  EncodedScatter(const ExchangeMethod& method, DType dtype, std::span<const Range> largest,
                 Communicator& comm, Device& device)
      : name_(method.codec()),
        codec_(make_codec<T>(name_)),
        device_(device),
        hops_(scatter_hops(method, comm.size(), comm.rank(), comm.ranks_per_node())) {
    const ScatterSizes sizes(method, dtype, hops_, largest);
    const Slice like{.dtype = DType::u8, .device = &device};
    sent_ = comm.scratch(like, sizes.sent);
    received_ = comm.scratch(like, sizes.received);
    const Slice numbers{.dtype = dtype_of<T>(), .device = &device};
    sums_ = comm.scratch(numbers, sizes.sums);
    decoded_ = comm.scratch(numbers, sizes.decoded);
    if (hops_.size() == 1) return;
    for (const ScatterHop& hop : hops_) groups_.push_back(comm.subgroup(hop.members));
  }

  void run(Communicator& comm, Slice numbers, std::span<const Range> chunks) override {
    const bool has_data = device_.stores();
    for (std::size_t number = 0; number < hops_.size(); ++number) {
      const ScatterHop& hop = hops_[number];
      const HopBytes bytes(name_, hop, chunks);
      const Slice sent = sent_.slice(bytes.sent, DType::u8),
                  received = received_.slice(bytes.received, DType::u8);
      if (has_data) encode(hop, number == 0, numbers, chunks, sent.data);
      // A single hop is one of all ranks.
      Communicator& group = groups_.empty() ? comm : *groups_[number];
      group.set_label(comm.label());
      all_to_all_v(group, received, sent, {.in = bytes.to, .out = bytes.from});
      if (has_data) add_up(hop, bytes.from.front(), received, chunks);
    }
    const Range own = chunks[static_cast<std::size_t>(comm.rank())];
    const Slice result = numbers.part(own.first, own.count);
    comm.announce(Operation::reduce_scatter, numbers, result);
    if (!has_data) return;
    // As plain memory: the result has been announced.
    const auto plain = [](Slice slice) {
      slice.device = &host_device();
      return slice;
    };
    host_device().convert(plain(result), plain(sums_.slice(own.count, dtype_of<T>())));
  }

 private:
  std::span<T> widened(Slice numbers) const {
    if (numbers.dtype == dtype_of<T>()) return host_span<T>(numbers);
    const Slice wide = decoded_.slice(numbers.count, dtype_of<T>());
    device_.convert(wide, numbers);
    return host_span<T>(wide);
  }
  std::span<T> sums(Count first, Count count) const {
    return host_span<T>(sums_.slice(first + count, dtype_of<T>()).part(first, count));
  }

  // The first hop sends gradients; the second one the sums of this rank's node, in the same order.
  void encode(const ScatterHop& hop, bool is_first, Slice numbers, std::span<const Range> chunks,
              std::byte* place) const {
    Count summed = 0;
    for (const std::vector<int>& of_member : hop.chunks)
      for (const int chunk : of_member) {
        const auto [first, count] = chunks[static_cast<std::size_t>(chunk)];
        codec_->encode(is_first ? widened(numbers.part(first, count)) : sums(summed, count), 1,
                       place);
        summed += count;
        place += encoded_bytes(name_, count);
      }
  }

  // This rank's chunks of all members, in their order. A message of `bytes` has them one after another.
  void add_up(const ScatterHop& hop, Count bytes, Slice received,
              std::span<const Range> chunks) const {
    Count first = 0, at = 0;
    for (const int chunk : hop.own()) {
      const Count count = chunks[static_cast<std::size_t>(chunk)].count;
      const std::span<T> sum = sums(first, count),
                         decoded = host_span<T>(decoded_.slice(count, dtype_of<T>()));
      codec_->decode(received.data + at, sum);
      for (std::size_t from = 1; from < hop.members.size(); ++from) {
        codec_->decode(received.data + static_cast<Count>(from) * bytes + at, decoded);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded[i];
      }
      first += count;
      at += encoded_bytes(name_, count);
    }
  }

  const std::string name_;
  std::unique_ptr<Codec<T>> codec_;
  Device& device_;
  const std::vector<ScatterHop> hops_;
  std::vector<std::unique_ptr<Communicator>> groups_;  // of each of two hops
  Memory sent_, received_, sums_, decoded_;
};

}  // namespace

std::unique_ptr<CompressedScatter> make_compressed_scatter(const ExchangeMethod& method,
                                                           DType dtype,
                                                           std::span<const Range> largest,
                                                           Communicator& comm, Device& device) {
  require_host(method, device);
  if (dtype == DType::f64)
    return std::make_unique<EncodedScatter<double>>(method, dtype, largest, comm, device);
  return std::make_unique<EncodedScatter<float>>(method, dtype, largest, comm, device);
}

Traffic scatter_traffic(const ExchangeMethod& method, std::span<const Range> chunks, int rank,
                        int ranks_per_node) {
  Traffic traffic;
  for (const ScatterHop& hop :
       scatter_hops(method, static_cast<int>(chunks.size()), rank, ranks_per_node)) {
    const HopBytes bytes(method.codec(), hop, chunks);
    const auto others = std::ssize(hop.members) - 1;
    const Count own = bytes.from.front();
    traffic += Traffic{others, bytes.sent - own, others, bytes.received - own};
  }
  return traffic;
}

Count scatter_memory_bytes(const ExchangeMethod& method, DType dtype,
                           std::span<const Range> largest, int rank, int ranks_per_node) {
  const std::vector<ScatterHop> hops =
      scatter_hops(method, static_cast<int>(largest.size()), rank, ranks_per_node);
  const ScatterSizes sizes(method, dtype, hops, largest);
  return sizes.sent + sizes.received +
         (sizes.sums + sizes.decoded) * element_bytes(statistics_type(dtype));
}

}  // namespace lockstep
