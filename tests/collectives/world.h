// The ranks' test harness: runs a body on every rank of a threads world and returns its results.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "collectives/transport/launch/launch.h"

namespace lockstep::test {

template <typename Result>
std::vector<Result> on_ranks(int ranks, const std::function<Result(RankContext&)>& body,
                             double timeout_s = 20) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  launch({.ranks = ranks, .timeout_s = timeout_s, .trace = false, .fault = {}},
         [&](RankContext& context) {
           Result result = body(context);
           const std::lock_guard lock(mutex);
           results[static_cast<std::size_t>(context.world.rank())] = std::move(result);
         });
  return results;
}

inline void on_ranks(int ranks, const std::function<void(RankContext&)>& body,
                     double timeout_s = 20) {
  launch({.ranks = ranks, .timeout_s = timeout_s, .trace = false, .fault = {}}, body);
}

}  // namespace lockstep::test
