// Trains a mini-GPT on the text of a file with two ranks, and prints the losses.
#include <cstdio>

#include "parallel/train/trainer.h"

int main(int, char** words) {
  lockstep::TrainOptions options;
  options.technique = "ddp";
  options.data = words[1];
  options.global_batch = 4;
  options.steps = 2;
  const lockstep::Plan plan = lockstep::plan_of(options, 2);
  lockstep::launch({.ranks = 2, .fault = {}}, [&](lockstep::RankContext& rank) {
    const lockstep::TrainResult result = lockstep::train(rank, plan);
    if (rank.world.rank() != 0) return;
    for (const lockstep::StepRecord& step : result.steps) std::printf("%.6f\n", step.loss);
  });
}
