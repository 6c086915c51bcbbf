// When a training run writes checkpoints, and how it resumes from one. Each rank has a
// `Checkpoints`, and all ranks call its functions together.
#pragma once

#include <memory>
#include <optional>

#include "parallel/checkpoint/index.h"
#include "parallel/checkpoint/own_folder.h"
#include "parallel/rank/training.h"

namespace lockstep {

class Checkpoints {
 public:
  // All arguments must outlive it.
  Checkpoints(Training& training, TrainingRank& rank, LossScaler& scaler);
  ~Checkpoints();

  // Takes the folder that --checkpoint names, before anything is read. Throws Error (bad_input) if
  // another process writes to it.
  void prepare();
  // Fills the rank's and the scaler's state from the newest intact checkpoint that --resume names,
  // and returns the steps taken before it. Warns of damaged ones. Returns nothing without --resume.
  // Throws Error (bad_input) if none is intact, or if it is from a different training run.
  std::optional<int> resume();
  // Writes a checkpoint if one is due: at the interval, and after the last step.
  void after_step(int steps_taken);

 private:
  struct Unfinished;
  const TrainOptions& options() const { return training_.plan().options; }
  // Returns when all ranks are here.
  void wait_for_all();
  bool all_ranks(bool condition);
  // The checkpoints that --resume names, the newest first, as rank 0 finds them: others may see them
  // change.
  std::vector<std::string> named_by_resume();
  // A checkpoint's index and reader, after this rank has checked its own part; or what is wrong.
  struct Checked;
  Checked check(const std::string& folder);
  void require_same(const CheckpointIndex& index, const std::string& folder);
  void load(Checked& checkpoint, const std::string& folder);
  // If the rule changed, the scaler starts over, with a warning.
  void restore_scaler(const CheckpointIndex& index, const std::string& folder);
  void begin(int steps_taken);
  void commit();
  CheckpointIndex index_at(int steps_taken);

  Training& training_;
  TrainingRank& rank_;
  LossScaler& scaler_;
  WholeBoxes whole_;
  std::string run_;                    // this run's identity
  std::string frozen_;                 // on rank 0: see CheckpointIndex
  std::unique_ptr<OwnFolder> folder_;  // on rank 0
  std::unique_ptr<Unfinished> unfinished_;
};

}  // namespace lockstep
