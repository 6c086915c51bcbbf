// The data of one case of a collective, the results that belong to them, and words for others. Data are
// random 64-bit integers, so sums are exact, and no rank can know another one's.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "labs/grader/collective_cases.h"
#include "labs/grader/ranks.h"

namespace lockstep {

class CollectiveData {
 public:
  using Values = std::vector<std::int64_t>;
  static constexpr Count element = sizeof(std::int64_t);

  CollectiveData(const Collective& collective, const CollectiveCase& of, std::mt19937_64& random);

  // "4 ranks, 16 elements, sum".
  std::string text() const;
  WorldOptions options() const;
  Problem problem() const;

  // The elements that the operation defines on this rank: how many come before them, the right ones,
  // and those of a run. Fewer or more than the right ones if the run returned fewer or more.
  Count first_result(int rank) const;
  Values right(int rank) const;
  Values results_of(const WorldRun& run, int rank) const;

  int chunk_of(Count element_number) const;
  // Describes where a wrong value comes from, without a number: data differ between gradings.
  std::string what_is(Count element_number, std::int64_t value) const;
  // "chunk 2 of rank 0", "the sum of chunk 2 over ranks 0, 3".
  std::string content_of(const SentMessage& message) const;

 private:
  bool has_own_chunk() const { return collective_->kind == LabJob::Kind::reduce_scatter; }
  std::int64_t input(int rank, Count i) const;
  std::int64_t expected(int rank, Count i) const;
  // The ranks whose elements from `begin` to `end`, reduced, are this message: "0, 3".
  std::string owners_of(const SentMessage& message, Count begin, Count end) const;

  const Collective* collective_;
  CollectiveCase case_;
  std::vector<Values> inputs_;
};

}  // namespace lockstep
