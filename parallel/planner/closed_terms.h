// Two terms of a step in closed form: a pipeline that fills and drains, and an all-reduce in a ring.
#pragma once

namespace lockstep {

// The links of one group of ranks.
struct GroupLinks {
  double bytes_per_second = 0;  // at which a rank sends in a ring over the group
  double latency = 0;           // of one collective, in seconds
  bool uses_nics = false;       // some of them are between nodes
};

// Both halves of an all-reduce of `bytes` in one collective: 2 (p - 1) / p of them pass each link.
// A rank alone needs no time.
double all_reduce_seconds(double bytes, double ranks, const GroupLinks& links);

// What a pipeline has to do in a step.
struct PipelineLoad {
  double ranks = 1, virtual_stages = 1, micro_batches = 1;
  // Passes of one micro-batch through all stages of a rank, forward and back, in seconds: of the
  // slowest rank, and in the mean.
  double slowest = 0, mean = 0;
  double hop = 0;               // seconds of a message to the next or the previous stage
  bool is_sender_busy = false;  // a rank cannot compute while it sends
};

// A step of the pipeline in seconds, without what follows it. The slowest rank is never idle but for
// (p - 1) / v micro-batches, in which the pipeline fills and drains (arXiv:2104.04473, section 2.2).
double pipeline_seconds(const PipelineLoad& load);

}  // namespace lockstep
