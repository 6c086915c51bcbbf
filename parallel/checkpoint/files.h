// Reads and writes a checkpoint's files: each rank writes one, and any rank reads from any of them
// what it needs.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/checksum.h"
#include "models/gpt/safetensors.h"
#include "parallel/checkpoint/index.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

// Calls block(box) for all rows of a box, with a bounded number of elements at a time.
inline constexpr Count elements_at_once = 1 << 18;
template <typename Block>
void in_blocks(const Box& box, Block block) {
  const Count most = std::max<Count>(1, elements_at_once / box.columns.count);
  for (Count row = 0; row < box.rows.count; row += most)
    block(Box{{box.rows.first + row, std::min(most, box.rows.count - row)}, box.columns});
}

// Receives elements of a tensor in the host's memory; the elements of one tensor arrive in order.
using TakeElements = std::function<void(std::size_t tensor, Count first, Slice values)>;

// What one rank writes: the elements that it counts, divided evenly between replicas that hold the
// same, and in turn the states of matrices. All ranks together write each state of each element once; and
// each what it alone has.
class RankPart {
 public:
  // Of all sets of parameters. `whole` must outlive it.
  RankPart(std::vector<TrainingState> sets, const OptimizerSettings& settings,
           const WholeBoxes& whole, int rank);
  // This rank's file, without checksums.
  const StoredFile& file() const { return file_; }
  // Passes on all elements.
  void copy(const TakeElements& take) const;

 private:
  // Boxes of an optimizer's elements; each has a tensor for each state of its parameter.
  struct Piece {
    Optimizer* optimizer;
    const Parameters* parameters;
    Range range;  // of its elements
    std::vector<PlacedBox> boxes;
    std::vector<std::size_t> first_tensors;  // of the boxes
  };
  // Numbers that are written as they lie, and their tensor: a state of a matrix that the rank owns, or what
  // it alone has.
  struct DensePiece {
    Slice numbers;
    std::size_t tensor;
  };
  std::vector<PlacedBox> boxes_in(const Piece& piece, Range range) const;
  void add_matrices(const TrainingState& state);

  const WholeBoxes& whole_;
  std::vector<Piece> pieces_;
  std::vector<DensePiece> dense_;
  StoredFile file_;
};

// Writes a file in `folder`, synced, and fills in the checksums.
class FileWriter {
 public:
  FileWriter(const std::string& folder, StoredFile& file);
  void write(std::size_t tensor, Count first, Slice values);
  void finish();

 private:
  StoredFile& file_;
  SafetensorsWriter writer_;
  std::map<std::size_t, Checksum> checksums_;  // of tensors that are not complete
};

class CheckpointReader {
 public:
  // `index` must outlive it.
  CheckpointReader(std::string folder, const CheckpointIndex& index);
  // Reads a state of the elements `box` of a parameter into the host's memory, row by row. Converts
  // to the type of `into`.
  void read(const std::string& parameter, std::string_view state, const Box& box, Slice into);
  // Fills the states of a rank's set of parameters from the checkpoint.
  void restore(const TrainingState& state, const WholeBoxes& whole);
  // Fills in what rank `rank` alone had of all its sets. Throws Error (bad_input) if it is not there.
  void restore_own(const std::vector<TrainingState>& sets, int rank);
  std::int64_t bytes_read() const { return bytes_read_; }
  // Throws Error (bad_input) naming the file unless file `number` is complete and has the tensors
  // that the index lists. Reads only its header.
  void check_header(std::size_t number);
  // The same; also throws unless every byte of the file is as it was written.
  void verify(std::size_t number);
  void verify_all();
  // Throws Error (bad_input) if the checkpoint was replaced since its index was read: data that
  // were read may then come from both.
  void require_unchanged() const;

 private:
  struct Source {
    std::size_t file;
    const StoredBox* stored;
  };
  const SafetensorsFile& open(std::size_t number);
  const TensorEntry& entry(std::size_t number, const StoredBox& stored);

  std::string folder_;
  const CheckpointIndex& index_;
  std::map<std::pair<std::string, std::string_view>, std::vector<Source>> sources_;
  struct Opened {
    std::unique_ptr<SafetensorsFile> file;
    std::map<std::string, const TensorEntry*, std::less<>> entries;
  };
  std::map<std::size_t, Opened> opened_;  // by number
  std::int64_t bytes_read_ = 0;
};

}  // namespace lockstep
