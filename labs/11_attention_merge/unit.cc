// Names the function of this lab for the grader, and makes its data.
#include "labs/unit.h"
#include "labs/answer.h"

#include <attention_merge.cc>
#include <random>
#include <vector>

extern "C" lockstep::LabUnit lockstep_lab_unit();

namespace {

// Attention over one part of the keys: its means, and its log-sum-exps.
struct Part {
  std::vector<double> out, log_sum_exp;
};

Part part_of(const lockstep::AttentionPart& shape, double size, bool is_empty,
             std::mt19937_64& random) {
  const auto rows = static_cast<std::size_t>(shape.sequences * shape.heads * shape.queries.count());
  const double anything = std::numeric_limits<double>::quiet_NaN();
  Part part{.out = std::vector<double>(rows * static_cast<std::size_t>(shape.head_size), anything),
            .log_sum_exp = std::vector<double>(rows, -std::numeric_limits<double>::infinity())};
  if (is_empty) return part;
  std::uniform_real_distribution<double> value(-1, 1);
  for (double& each : part.out) each = value(random);
  for (double& each : part.log_sum_exp) each = size * value(random);
  return part;
}

// problem: sequences, heads, head size, queries, parts, size of the log-sum-exps, which parts are
// empty (one bit each), seed.
std::string answer(std::span<const std::int64_t> problem) {
  const lockstep::AttentionPart shape{.sequences = problem[0],
                                      .heads = problem[1],
                                      .head_size = problem[2],
                                      .kv_heads = problem[1],
                                      .queries = lockstep::Positions::all(problem[3]),
                                      .keys = lockstep::Positions::all(problem[3]),
                                      .length = problem[3]};
  std::mt19937_64 random(static_cast<std::uint64_t>(problem[7]));
  // Before the first part nothing has been seen, and `out` holds anything.
  Part all = part_of(shape, 0, true, random);
  for (std::int64_t i = 0; i < problem[4]; ++i) {
    const Part part =
        part_of(shape, static_cast<double>(problem[5]), (problem[6] >> i & 1) != 0, random);
    lockstep::merge_attention(all.out.data(), all.log_sum_exp.data(), part.out.data(),
                              part.log_sum_exp.data(), shape);
  }
  return lockstep::numbers("log_sum_exp:", std::span<const double>(all.log_sum_exp)) +
         lockstep::numbers("out:", std::span<const double>(all.out));
}

}  // namespace

lockstep::LabUnit lockstep_lab_unit() {
  lockstep::LabUnit unit;
  unit.answer = answer;
  return unit;
}
