// When a training writes checkpoints, and how it goes on from one. Each rank has
// a `Checkpoints`, and all ranks call its functions together.
#pragma once

#include <memory>
#include <optional>

#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/index.h"
#include "parallel/training.h"

namespace lockstep {

class Checkpoints {
 public:
  // All arguments must outlive it.
  Checkpoints(Training& training, TrainingRank& rank, LossScaler& scaler);
  ~Checkpoints();

  // Fills the rank's and the scaler's state with those of the newest whole checkpoint that --resume
  // names, and returns the steps taken before it. Warns of damaged ones. Returns nothing without
  // --resume. Throws Error (bad_input) if there is no whole one, or if it is of another training.
  std::optional<int> resume();
  // Checks --checkpoint, before the first step.
  void prepare();
  // Writes a checkpoint if one is due: at the interval, and after the last step.
  void after_step(int steps_taken);

 private:
  struct Unfinished;
  const TrainOptions& options() const { return training_.plan().options; }
  // Returns when all ranks are here.
  void wait_for_all();
  bool all_ranks(bool condition);
  std::string fault_of(const std::string& folder);
  void load(const std::string& folder);
  // Of another rule, the scaler begins anew; says so.
  void restore_scaler(const CheckpointIndex& index, const std::string& folder);
  void begin(int steps_taken);
  void commit();
  CheckpointIndex index_at(int steps_taken);
  DataPosition data_position() const;

  Training& training_;
  TrainingRank& rank_;
  LossScaler& scaler_;
  WholeBoxes whole_;
  std::unique_ptr<Unfinished> unfinished_;
};

}  // namespace lockstep
