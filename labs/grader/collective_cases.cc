#include "labs/grader/collective_cases.h"

#include <array>
#include <random>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_to_all/all_to_all.h"
#include "collectives/base/error.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

template <typename Entry>
Collective collective(LabJob::Kind kind, const std::vector<Entry>& table, std::string_view name,
                      bool reduces, bool has_equal_chunks) {
  const Entry& entry = find_algorithm(table, "lab", name);
  return {kind, entry.traffic, entry.scratch, reduces, has_equal_chunks};
}

}  // namespace

Collective collective_of(const std::string& operation) {
  using Kind = LabJob::Kind;
  if (operation == "reduce_scatter")
    return collective(Kind::reduce_scatter, reduce_scatter_algorithms(), "ring", true, false);
  if (operation == "all_gather")
    return collective(Kind::all_gather, all_gather_algorithms(), "ring", false, false);
  if (operation == "all_reduce")
    return collective(Kind::all_reduce, all_reduce_algorithms(), "recursive_doubling", true, false);
  require(operation == "all_to_all", "unknown operation of a lab: " + operation);
  return collective(Kind::all_to_all, all_to_all_algorithms(), "pairwise", false, true);
}

std::vector<CollectiveCase> usual_cases(const Collective& of) {
  std::vector<CollectiveCase> cases = {{2, 8}, {4, 16}, {8, 32}};
  if (of.reduces) cases.push_back({4, 16, ReduceOp::max}), cases.push_back({2, 6, ReduceOp::min});
  return cases;
}
std::vector<CollectiveCase> uneven_cases(const Collective& of) {
  if (of.has_equal_chunks) return {{1, 4}, {3, 12}, {5, 5}, {6, 6}, {7, 14}, {4, 0}};
  return {{1, 4}, {3, 10}, {5, 12}, {6, 6}, {7, 3}, {4, 0}};
}
std::vector<CollectiveCase> hidden_cases(const Collective& of, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<CollectiveCase> cases;
  for (int i = 0; i < 4; ++i) {
    CollectiveCase drawn{.ranks = std::uniform_int_distribution(2, 8)(random),
                         .count = std::uniform_int_distribution<Count>(9, 60)(random)};
    // For any secret: a number of ranks that is not a power of two, with chunks of different sizes.
    if (i == 0) {
      constexpr std::array no_powers = {3, 5, 6, 7};
      drawn.ranks = no_powers[std::uniform_int_distribution<std::size_t>(0, 3)(random)];
      if (drawn.count % drawn.ranks == 0) ++drawn.count;
    }
    if (of.has_equal_chunks) drawn.count *= drawn.ranks;
    if (of.reduces && i % 2 == 1) drawn.op = i == 1 ? ReduceOp::max : ReduceOp::min;
    cases.push_back(drawn);
  }
  return cases;
}

}  // namespace lockstep
