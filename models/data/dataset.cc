#include "models/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "collectives/base/error.h"
#include "models/data/documents.h"
#include "models/random.h"

namespace lockstep {

Dataset::Dataset(const std::string& data, int vocabulary, double validation_fraction,
                 bool documents)
    : data_(data), tokens_(data, vocabulary), vocabulary_(vocabulary) {
  require(validation_fraction >= 0 && validation_fraction < 1,
          fmt::format("a validation fraction of {}", validation_fraction),
          "use a number from 0 to below 1");
  const Count size = tokens_.size();
  training_ = size - static_cast<Count>(validation_fraction * static_cast<double>(size));
  if (documents) find_documents();
}

void Dataset::find_documents() {
  constexpr std::int32_t line_feed = '\n';
  const bool is_text = tokens_.is_text();
  const std::int32_t end_of_text = tokens_.end_of_text();
  documents_.push_back(0);
  for (Count i = is_text ? 2 : 1; i < tokens_.size(); ++i)
    if (is_text ? tokens_[i - 1] == line_feed && tokens_[i - 2] == line_feed
                : tokens_[i] == end_of_text)
      documents_.push_back(i);
  require(
      documents_.size() > 1,
      fmt::format("{}: found no document boundary: {}", data_,
                  is_text ? "no line is empty" : fmt::format("there is no token {}", end_of_text)),
      "omit --documents, or give data with several documents");
}

std::span<const Count> Dataset::beginnings(Count first, Count last) const {
  const auto from = std::ranges::lower_bound(documents_, first);
  return {from, std::upper_bound(from, documents_.end(), last)};
}

Count Dataset::targets_of(Count begin, Count length) const {
  return length - std::ssize(beginnings(begin + 1, begin + length));
}

std::vector<Count> Dataset::lengths_of(Count begin, Count length) const {
  std::vector<Count> lengths;
  Count from = begin;
  for (const Count next : beginnings(begin + 1, begin + length - 1))
    lengths.push_back(next - std::exchange(from, next));
  lengths.push_back(begin + length - from);
  return lengths;
}

void Dataset::append(Batch& batch, std::span<const Count> begins, int length) const {
  const Positions positions = batch.layout.positions(length);
  std::vector<std::vector<Count>> lengths;
  for (const Count begin : begins) lengths.push_back(lengths_of(begin, length));
  std::vector<std::vector<int>> orders;
  if (batch.layout.balanced) orders = balanced_orders(lengths, batch.layout.ranks);
  batch.length = static_cast<int>(positions.count());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<int> order(lengths[i].size());
    std::iota(order.begin(), order.end(), 0);
    append(batch, begins[i], lengths[i], orders.empty() ? order : orders[i], positions);
  }
}

void Dataset::append(Batch& batch, Count begin, std::span<const Count> lengths,
                     std::span<const int> order, const Positions& positions) const {
  std::vector<Count> begins(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), Count{0});
  const Count length = begins.back() + lengths.back();

  // Goes through the documents in their new order, and through this rank's positions among them.
  Count place = 0, i = 0;
  for (const int document : order) {
    if (!documents_.empty()) batch.documents.push_back(batch.sequences * length + place);
    const Count end = place + lengths[document];
    for (; i < positions.count() && positions[i] < end; ++i) {
      const Count in_data = begins[document] + positions[i] - place, index = begin + in_data;
      batch.inputs.push_back(token(index));
      batch.targets.push_back(beginnings(index + 1, index + 1).empty() ? token(index + 1)
                                                                       : no_target);
      if (batch.layout.balanced) batch.positions.push_back(static_cast<std::int32_t>(in_data));
    }
    place = end;
  }
  ++batch.sequences;
}

Count Dataset::begin_of(const Sampling& sampling, int step, int row) const {
  const auto& [order, global_batch, length, seed] = sampling;
  const Count starts = training_ - length;
  require(starts >= 1,
          fmt::format("{}: {} training tokens are too few for a sequence of {}", data_, training_,
                      length),
          "give more text or a smaller --sequence-length");
  if (order == Order::random)
    return static_cast<Count>(random_bits(seed, step, row) % static_cast<std::uint64_t>(starts));
  const Count sequence = Count{step} * global_batch + row;
  require(sequence < (training_ - 1) / length,
          fmt::format("{}: step {} needs sequence {}, the data have {} of {} tokens", data_, step,
                      sequence, (training_ - 1) / length, length),
          "lower --steps or --global-batch, or use --order random");
  return sequence * length;
}

Batch Dataset::batch(const Sampling& sampling, int step, int first, int count,
                     const TokenLayout& layout) const {
  const int length = sampling.length;
  require(length >= 1 && step >= 0 && first >= 0 && count >= 0 &&
              first + count <= sampling.global_batch,
          fmt::format("rows {} to {} of a batch of {} at step {}", first, first + count,
                      sampling.global_batch, step));
  Batch batch{.inputs = {},
              .targets = {},
              .layout = layout,
              .first = first,
              .global_batch = sampling.global_batch,
              .step = step};
  std::vector<Count> begins;
  for (int row = first; row < first + count; ++row) begins.push_back(begin_of(sampling, step, row));
  append(batch, begins, length);
  return batch;
}

Count Dataset::targets(const Sampling& sampling, int step, std::optional<RowRange> rows) const {
  const auto [first, count] = rows.value_or(RowRange{0, sampling.global_batch});
  Count sum = 0;
  for (int row = first; row < first + count; ++row)
    sum += targets_of(begin_of(sampling, step, row), sampling.length);
  return sum;
}

bool Dataset::may_lack_targets(Count length) const {
  Count adjacent = 1;
  for (std::size_t i = 1; i < documents_.size(); ++i) {
    adjacent = documents_[i] == documents_[i - 1] + 1 ? adjacent + 1 : 1;
    if (adjacent >= length) return true;
  }
  return false;
}

void Dataset::check_steps(const Sampling& sampling, int steps,
                          std::span<const RowRange> parts) const {
  if (steps == 0) return;
  begin_of(sampling, steps - 1, sampling.global_batch - 1);
  if (!may_lack_targets(sampling.length)) return;
  for (int step = 0; step < steps; ++step)
    for (const RowRange& rows : parts)
      require(
          targets(sampling, step, rows) > 0,
          [&] {
            return fmt::format(
                "{}: no target in sequences {} to {} of step {}, whose tokens all end "
                "documents",
                data_, rows.first, rows.first + rows.count - 1, step);
          },
          "remove what is empty from the data, or use another --seed or a larger --global-batch");
}

void Dataset::check_validation(int length) const {
  const int sequences = validation_sequences(length);
  require(
      validation_targets(length) > 0,
      [&] {
        return fmt::format(
            "{}: no target in the {} held-out sequences, whose tokens all end documents", data_,
            sequences);
      },
      "remove what is empty from the end of the data, or raise --validation-fraction");
}

std::vector<Count> Dataset::document_lengths(const Sampling& sampling, int step, int row) const {
  return lengths_of(begin_of(sampling, step, row), sampling.length);
}

int Dataset::validation_sequences(int length) const {
  const Count held_out = tokens_.size() - training_;
  require(held_out > length,
          fmt::format("{}: {} held-out tokens are too few for a sequence of {}", data_, held_out,
                      length),
          "raise --validation-fraction or give more text");
  return static_cast<int>((held_out - 1) / length);
}

Count Dataset::validation_targets(int length) const {
  return targets_of(training_, Count{validation_sequences(length)} * length);
}

Batch Dataset::validation_batch(int first, int count, int length, const TokenLayout& layout) const {
  require(first >= 0 && count >= 0 && first + count <= validation_sequences(length),
          fmt::format("{}: validation sequences {} to {} of {}", data_, first, first + count,
                      validation_sequences(length)));
  Batch batch{.inputs = {}, .targets = {}, .layout = layout};
  std::vector<Count> begins;
  for (int i = first; i < first + count; ++i) begins.push_back(training_ + Count{i} * length);
  append(batch, begins, length);
  return batch;
}

double Dataset::unigram_entropy() const {
  std::vector<Count> counts(static_cast<std::size_t>(vocabulary_));
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
