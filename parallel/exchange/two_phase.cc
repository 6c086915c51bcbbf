#include "parallel/exchange/two_phase.h"

#include <algorithm>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_to_all/all_to_all.h"
#include "models/ops/narrow_types.h"
#include "parallel/exchange/codec.h"

namespace lockstep {

// Whole blocks of every codec.
TwoPhaseChunks::TwoPhaseChunks(Count elements, int ranks) : count(elements) {
  constexpr Count block = 256;
  const Count fair = (elements + ranks - 1) / ranks;
  each = fair < block ? (fair + 7) / 8 * 8 : (fair + block - 1) / block * block;
}

Range TwoPhaseChunks::operator[](int rank) const {
  const Count first = std::min(count, rank * each);
  return {first, std::min(each, count - first)};
}

namespace {

// lab: two_phase
template <typename T>
class TwoPhase final : public CompressedSum {
 public:
  TwoPhase(std::string_view codec, bool has_feedback, const std::vector<ExchangedBucket>& buckets,
           Communicator& comm, Device& device)
      : codec_(make_codec<T>(codec)), has_feedback_(has_feedback), device_(device) {
    Count most = 0, bytes = 0;
    for (const ExchangedBucket& bucket : buckets) {
      const TwoPhaseChunks chunks(bucket.range.count, comm.size());
      most = std::max(most, chunks.each);
      bytes = std::max(bytes, codec_->bytes(chunks.each));
      Feedback& feedback = feedback_.emplace_back();
      if (!has_feedback) continue;
      feedback.own = numbers(comm, bucket.range.count);
      feedback.chunk = numbers(comm, chunks[comm.rank()].count);
    }
    const Slice like{.dtype = DType::u8, .device = &device};
    sent_ = comm.scratch(like, comm.size() * bytes);
    received_ = comm.scratch(like, comm.size() * bytes);
    sum_ = numbers(comm, most);
    decoded_ = numbers(comm, most);
  }

  void run(Communicator& comm, std::size_t number, Slice gradients) override {
    const TwoPhaseChunks chunks(gradients.count, comm.size());
    const Count bytes = codec_->bytes(chunks.each);
    const Slice sent = sent_.slice(comm.size() * bytes, DType::u8),
                received = received_.slice(comm.size() * bytes, DType::u8);
    // Without data, only messages travel.
    const bool has_data = device_.stores();
    if (has_data) encode_chunks(chunks, bytes, number, gradients, sent);
    // lab: solution
    all_to_all(comm, received, sent);
    // lab: given
    if (has_data) add_chunks(comm, chunks, bytes, received, feedback_[number], sent);
    // lab: solution
    all_gather(comm, sent);
    for (int from = 0; has_data && from < comm.size(); ++from)
      codec_->decode(sent.data + from * bytes, numbers_of(gradients, chunks[from]));
    // lab: given
    comm.announce(Operation::all_reduce, gradients, gradients);
  }

  Kept kept(std::size_t number) const override {
    if (!has_feedback_) return {};
    const Feedback& feedback = feedback_[number];
    return {.own = feedback.own.slice(feedback.own.bytes() / size, dtype_of<T>()),
            .chunk = feedback.chunk.slice(feedback.chunk.bytes() / size, dtype_of<T>())};
  }
  std::vector<Slice> all_kept() const override {
    std::vector<Slice> all;
    for (std::size_t number = 0; has_feedback_ && number < feedback_.size(); ++number)
      for (const Slice part : {kept(number).own, kept(number).chunk}) all.push_back(part);
    return all;
  }

 private:
  static constexpr Count size = sizeof(T);
  struct Feedback {
    Memory own, chunk;
  };

  Memory numbers(Communicator& comm, Count count) const {
    Memory memory = comm.scratch({.dtype = dtype_of<T>(), .device = &device_}, count);
    device_.zero(memory.slice(count, dtype_of<T>()));
    return memory;
  }
  static std::span<T> view(const Memory& memory, Count count) {
    return host_span<T>(memory.slice(count, dtype_of<T>()));
  }
  static void add(std::span<T> into, std::span<const T> from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] += from[i];
  }
  static void keep_difference(std::span<T> kept, std::span<const T> x, std::span<const T> decoded) {
    // lab: solution
    for (std::size_t i = 0; i < x.size(); ++i) kept[i] = x[i] - decoded[i];
    // lab: given
  }

  static std::span<T> numbers_of(Slice slice, Range range) {
    return host_span<T>(slice.part(range.first, range.count));
  }

  // Adds what was kept to this rank's gradients, and encodes chunk by chunk.
  void encode_chunks(const TwoPhaseChunks& chunks, Count bytes, std::size_t number, Slice gradients,
                     Slice sent) {
    const Slice kept = this->kept(number).own;
    const std::span<T> all = host_span<T>(gradients);
    // lab: solution
    if (has_feedback_) add(all, host_span<T>(kept));
    const double scale = codec_->scale(all);
    for (int to = 0; to * bytes < sent.count; ++to) {
      const std::span<T> chunk = numbers_of(gradients, chunks[to]);
      codec_->encode(chunk, scale, sent.data + to * bytes);
      if (!has_feedback_) continue;
      const std::span<T> decoded = view(decoded_, chunks[to].count);
      codec_->decode(sent.data + to * bytes, decoded);
      keep_difference(numbers_of(kept, chunks[to]), chunk, decoded);
    }
    // lab: given
  }

  // Adds up this rank's chunk of all ranks in their order, and encodes the sum to its place.
  void add_chunks(const Communicator& comm, const TwoPhaseChunks& chunks, Count bytes,
                  Slice received, Feedback& feedback, Slice encoded) {
    const Count count = chunks[comm.rank()].count;
    const std::span<T> sum = view(sum_, count), decoded = view(decoded_, count);
    // lab: solution
    codec_->decode(received.data, sum);
    for (int from = 1; from < comm.size(); ++from) {
      codec_->decode(received.data + from * bytes, decoded);
      add(sum, decoded);
    }
    if (has_feedback_) add(sum, view(feedback.chunk, count));
    std::byte* const place = encoded.data + comm.rank() * bytes;
    codec_->encode(sum, codec_->scale(sum), place);
    if (!has_feedback_) return;
    codec_->decode(place, decoded);
    keep_difference(view(feedback.chunk, count), sum, decoded);
    // lab: given
  }

  std::unique_ptr<Codec<T>> codec_;
  const bool has_feedback_;
  Device& device_;
  std::vector<Feedback> feedback_;  // by bucket
  Memory sent_, received_, sum_, decoded_;
};
// lab: end

}  // namespace

std::unique_ptr<CompressedSum> make_two_phase(std::string_view codec, bool has_feedback,
                                              DType dtype,
                                              const std::vector<ExchangedBucket>& buckets,
                                              Communicator& comm, Device& device) {
  if (dtype == DType::f64)
    return std::make_unique<TwoPhase<double>>(codec, has_feedback, buckets, comm, device);
  return std::make_unique<TwoPhase<float>>(codec, has_feedback, buckets, comm, device);
}

Traffic two_phase_traffic(std::string_view codec, Count count, int ranks) {
  const Count bytes = encoded_bytes(codec, TwoPhaseChunks(count, ranks).each);
  return {2 * (ranks - 1), 2 * (ranks - 1) * bytes, 2 * (ranks - 1), 2 * (ranks - 1) * bytes};
}

ExchangeMemory two_phase_memory(std::string_view codec, bool has_feedback, DType dtype,
                                const std::vector<ExchangedBucket>& buckets, int ranks, int rank) {
  Count kept = 0, most = 0, bytes = 0;
  for (const ExchangedBucket& bucket : buckets) {
    const TwoPhaseChunks chunks(bucket.range.count, ranks);
    most = std::max(most, chunks.each);
    bytes = std::max(bytes, encoded_bytes(codec, chunks.each));
    if (has_feedback) kept += bucket.range.count + chunks[rank].count;
  }
  return {.kept = kept * element_bytes(dtype),
          .work = 2 * ranks * bytes + 2 * most * element_bytes(dtype)};
}

}  // namespace lockstep
