#include "models/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "collectives/base/error.h"
#include "models/random.h"

namespace lockstep {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{4} << 30;
constexpr int header_words = 256;
constexpr std::int32_t token_file_magic = 20240520, token_file_version = 1;
// llm.c's files for Llama 3 have 32-bit tokens. As text they would train nonsense.
constexpr std::int32_t wide_token_file_magic = 20240801;

std::int32_t word(std::string_view bytes, int index) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + 4 * index, 4);
  return value;
}

bool begins_with(std::string_view bytes, std::int32_t magic) {
  return bytes.size() >= 4 && word(bytes, 0) == magic;
}

// The tokens that follow the header.
std::string_view tokens_of_file(std::string_view bytes, const std::string& path) {
  constexpr std::size_t header = 4 * header_words;
  require(bytes.size() >= header,
          fmt::format("{}: a token file's header of {} bytes is cut off", path, header),
          "write the file again");
  require(word(bytes, 1) == token_file_version,
          fmt::format("{}: token file version {}", path, word(bytes, 1)),
          "only version 1 is known");
  const std::int64_t count = word(bytes, 2);
  const auto held = static_cast<std::int64_t>((bytes.size() - header) / 2);
  require(
      count >= 0 && count == held && bytes.size() == header + 2 * static_cast<std::size_t>(count),
      fmt::format("{}: the header announces {} tokens, the file holds {}", path, count, held),
      "the file is truncated or has extra bytes; write it again");
  return bytes.substr(header);
}

}  // namespace

Dataset::Dataset(const std::string& path, int vocabulary, double validation_fraction)
    : path_(path), file_(path, most_bytes), bytes_(file_.bytes()) {
  require(validation_fraction >= 0 && validation_fraction < 1,
          fmt::format("a validation fraction of {}", validation_fraction),
          "use a number from 0 to below 1");
  require(!bytes_.empty(), fmt::format("{} is empty", path), "give a text or a token file");
  require(!begins_with(bytes_, wide_token_file_magic),
          fmt::format("{}: a token file of 32-bit tokens", path),
          "write the tokens as 16-bit numbers (llm.c's format 20240520)");
  if (begins_with(bytes_, token_file_magic)) {
    bytes_ = tokens_of_file(bytes_, path);
    bytes_of_token_ = 2;
  }
  for (Count i = 0; i < size(); ++i)
    if (token(i) >= vocabulary)
      require(false,
              fmt::format("{}: token {} is {}, the model's vocabulary has {}", path, i, token(i),
                          vocabulary),
              "use a model with a larger vocabulary or other data");
  training_ = size() - static_cast<Count>(validation_fraction * static_cast<double>(size()));
}

std::int32_t Dataset::token(Count index) const {
  if (bytes_of_token_ == 1) return static_cast<std::uint8_t>(bytes_[index]);
  std::uint16_t token = 0;
  std::memcpy(&token, bytes_.data() + 2 * index, 2);
  return token;
}

void Dataset::append(Batch& batch, Count begin, const Positions& positions) const {
  for (Count i = 0; i < positions.count(); ++i) {
    batch.inputs.push_back(token(begin + positions[i]));
    batch.targets.push_back(token(begin + positions[i] + 1));
  }
  ++batch.sequences;
}

Batch Dataset::batch(Order order, int step, int global_batch, int first, int count, int length,
                     std::uint64_t seed, const TokenLayout& layout) const {
  require(length >= 1 && step >= 0 && first >= 0 && count >= 0 && first + count <= global_batch,
          fmt::format("rows {} to {} of a batch of {} at step {}", first, first + count,
                      global_batch, step));
  const Positions positions = layout.positions(length);
  Batch batch{.inputs = {},
              .targets = {},
              .length = static_cast<int>(positions.count()),
              .layout = layout,
              .first = first,
              .step = step};
  const Count starts = training_ - length;
  require(starts >= 1,
          fmt::format("{}: {} training tokens are too few for a sequence of {}", path_, training_,
                      length),
          "give more text or a smaller --sequence-length");
  for (int row = first; row < first + count; ++row) {
    if (order == Order::random) {
      append(batch,
             static_cast<Count>(random_bits(seed, step, row) % static_cast<std::uint64_t>(starts)),
             positions);
      continue;
    }
    const Count sequence = Count{step} * global_batch + row;
    require(sequence < (training_ - 1) / length,
            fmt::format("{}: step {} needs sequence {}, the file has {} of {} tokens", path_, step,
                        sequence, (training_ - 1) / length, length),
            "lower --steps or --global-batch, or use --order random");
    append(batch, sequence * length, positions);
  }
  return batch;
}

int Dataset::validation_sequences(int length) const {
  const Count held_out = size() - training_;
  require(held_out > length,
          fmt::format("{}: {} held-out tokens are too few for a sequence of {}", path_, held_out,
                      length),
          "raise --validation-fraction or give more text");
  return static_cast<int>((held_out - 1) / length);
}

Batch Dataset::validation_batch(int first, int count, int length, const TokenLayout& layout) const {
  require(first >= 0 && count >= 0 && first + count <= validation_sequences(length),
          fmt::format("{}: validation sequences {} to {} of {}", path_, first, first + count,
                      validation_sequences(length)));
  const Positions positions = layout.positions(length);
  Batch batch{
      .inputs = {}, .targets = {}, .length = static_cast<int>(positions.count()), .layout = layout};
  for (int i = first; i < first + count; ++i)
    append(batch, training_ + Count{i} * length, positions);
  return batch;
}

double Dataset::unigram_entropy() const {
  std::vector<Count> counts(1 << 16);
  for (Count i = 0; i < training_; ++i) ++counts[token(i)];
  double entropy = 0;
  for (const Count count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(training_);
    entropy -= share * std::log(share);
  }
  return entropy;
}

}  // namespace lockstep
