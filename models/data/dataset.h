// Batches of the tokens to train on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/data/rows.h"
#include "models/data/token_files.h"

namespace lockstep {

// Row-major [sequences, length]: the tokens of each sequence that a rank has. The target of each
// input is the next token of the sequence, whichever rank has that, or no_target at the end of a
// document.
struct Batch {
  std::vector<std::int32_t> inputs, targets;
  int sequences = 0, length = 0;
  TokenLayout layout = {};
  int first = 0;         // index of its first sequence in the global batch of the step
  int global_batch = 0;  // sequences of the global batch
  int step = -1;         // below 0: not for training
  // With documents: where they begin in whole sequences, see Documents; and of each input, its
  // position in the data's order if the documents are in another.
  std::vector<Count> documents = {};
  std::vector<std::int32_t> positions = {};
};

// Its rows, in training, with gradients times `loss_scale`, or outside of it. The batch must outlive
// them.
inline Rows rows_of(const Batch& batch) {
  return {.sequences = batch.sequences,
          .length = batch.length,
          .layout = batch.layout,
          .documents = batch.documents,
          .token_positions = batch.positions};
}
inline Rows rows_in_training(const Batch& batch, double loss_scale = 1) {
  Rows rows = rows_of(batch);
  rows.first = Count{batch.first} * rows.whole_length();
  rows.step = batch.step;
  rows.router_scale = loss_scale / batch.global_batch;
  return rows;
}

enum class Order { sequential, random };

// Which sequences of the data the steps take.
struct Sampling {
  Order order = Order::random;
  int global_batch = 1;  // sequences per step
  int length = 0;        // tokens per sequence
  std::uint64_t seed = 0;
};

// Rows of a global batch.
struct RowRange {
  int first = 0, count = 0;
};

class Dataset {
 public:
  // Opens the files of `data`: see token_files.h. The last `validation_fraction` of their tokens are
  // held out. With `documents`, the tokens are documents one after another: each begins with the
  // token 50256 in a token file (128000 if its tokens have 32 bits), and after an empty line in a
  // text. Throws Error (bad_input) naming the file and its fault, or if it finds no document
  // boundary.
  Dataset(const std::string& data, int vocabulary, double validation_fraction,
          bool documents = false);

  // Rows first .. first + count - 1 of the global batch of `step`. Sequential: step s takes
  // sequences s*G .. s*G+G-1, and sequence i begins at token i*length. Random: the start of a row
  // depends only on (seed, step, row), so it is the same on whichever rank takes the row. Reads the
  // tokens of each sequence of `length` that `layout` gives this rank. Throws Error (bad_input) if
  // the file has too few tokens.
  Batch batch(const Sampling& sampling, int step, int first, int count,
              const TokenLayout& layout = {}) const;
  // Returns the number of targets in rows of the global batch of `step`; without `rows`, in all of
  // them.
  Count targets(const Sampling& sampling, int step, std::optional<RowRange> rows = {}) const;
  // Throws Error (bad_input) unless all steps below `steps` have enough tokens, and a target in each
  // of these parts of their batches: without a target, a batch has no loss.
  void check_steps(const Sampling& sampling, int steps, std::span<const RowRange> parts) const;
  // The same for the held-out sequences.
  void check_validation(int length) const;
  // Lengths of the documents, or parts of documents, that fill a row of the global batch of `step`,
  // in the data's order.
  std::vector<Count> document_lengths(const Sampling& sampling, int step, int row) const;

  // The number of held-out sequences, without overlap, and the number of their targets.
  int validation_sequences(int length) const;
  Count validation_targets(int length) const;
  Batch validation_batch(int first, int count, int length, const TokenLayout& layout = {}) const;

  std::uint64_t checksum() const { return tokens_.checksum(); }
  Count training_tokens() const { return training_; }
  // Entropy of single training tokens, in nats: the loss of the best model without context.
  double unigram_entropy() const;

 private:
  std::int32_t token(Count index) const { return tokens_[index]; }
  void find_documents();
  // Beginnings of documents among the tokens first .. last.
  std::span<const Count> beginnings(Count first, Count last) const;
  Count targets_of(Count begin, Count length) const;
  // Whether as many documents follow each other without a token for any of them as a sequence has
  // tokens.
  bool may_lack_targets(Count length) const;
  std::vector<Count> lengths_of(Count begin, Count length) const;
  // The first token of a row of the global batch.
  Count begin_of(const Sampling& sampling, int step, int row) const;
  // Adds the sequences that begin with these tokens, as far as this rank has them.
  void append(Batch& batch, std::span<const Count> begins, int length) const;
  // Adds one sequence: its documents, of these lengths, in that order.
  void append(Batch& batch, Count begin, std::span<const Count> lengths, std::span<const int> order,
              const Positions& positions) const;

  std::string data_;  // its name in errors
  TokenFiles tokens_;
  int vocabulary_;
  Count training_ = 0;
  std::vector<Count> documents_;  // their first tokens; empty: all data are one
};

}  // namespace lockstep
