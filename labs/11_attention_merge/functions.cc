// Names the function of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <algorithm>
#include <attention_merge.cc>
#include <random>
#include <vector>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

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

lockstep::AttentionPart shape_of(std::span<const std::int64_t> problem) {
  return {.sequences = problem[0],
          .heads = problem[1],
          .head_size = problem[2],
          .kv_heads = problem[1],
          .queries = lockstep::Positions::all(problem[3]),
          .keys = lockstep::Positions::all(problem[3]),
          .length = problem[3]};
}

// What usual mistakes make of the parts.
std::string causes(int, int, std::span<const std::int64_t> problem) {
  const lockstep::AttentionPart shape = shape_of(problem);
  std::mt19937_64 random(static_cast<std::uint64_t>(problem[7]));
  std::string text;
  std::vector<double> mean, halved, largest, added;
  for (std::int64_t i = 0; i < problem[4]; ++i) {
    const Part part =
        part_of(shape, static_cast<double>(problem[5]), (problem[6] >> i & 1) != 0, random);
    const std::span<const double> out = part.out, sums = part.log_sum_exp;
    const std::string alone = "this is part " + std::to_string(i) + " alone";
    text += lockstep::cause("log_sum_exp:", alone, sums) + lockstep::cause("out:", alone, out);
    if (i == 0) halved = part.out, largest = added = part.log_sum_exp;
    mean.resize(out.size());
    for (std::size_t k = 0; k < out.size(); ++k) {
      mean[k] += out[k] / static_cast<double>(problem[4]);
      if (i > 0) halved[k] = (halved[k] + out[k]) / 2;
    }
    for (std::size_t k = 0; i > 0 && k < sums.size(); ++k)
      largest[k] = std::max(largest[k], sums[k]), added[k] += sums[k];
  }
  const auto line = [&](const char* name, const char* words, const std::vector<double>& values) {
    text += lockstep::cause(name, words, std::span<const double>(values));
  };
  line("log_sum_exp:", "this is the largest of the parts' log-sum-exps, not the log of their sum",
       largest);
  line("log_sum_exp:", "this is the sum of the parts' log-sum-exps: add the exponentials", added);
  line("out:", "this is the mean of the parts, as if all weighed the same", mean);
  line("out:", "each part weighs as much as all parts before it", halved);
  return text;
}

// problem: sequences, heads, head size, queries, parts, size of the log-sum-exps, which parts are
// empty (one bit each), seed.
std::string answer(std::span<const std::int64_t> problem) {
  const lockstep::AttentionPart shape = shape_of(problem);
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

lockstep::LabFunctions lockstep_lab_functions() {
  lockstep::LabFunctions functions;
  functions.answer = answer;
  functions.causes = causes;
  return functions;
}
