// What a rank of a fuzzed case compares: it counts the comparisons and says what differs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/parameters.h"
#include "parallel/options.h"

namespace lockstep {

struct CaseCheck {
  std::int64_t compared = 0;             // numbers and parameters
  std::vector<std::string> differences;  // or the error with which the case ended
  bool has_ended = false;                // with an error
};

using Values = std::vector<double>;  // of a whole model, one parameter after another

// Rounding errors that are no mistakes: a fraction of a parameter's values, whose L2 norm counts as
// at least `least` of all parameters' together. Some gradients, as those of the bias of keys, are
// zero but for rounding.
struct Tolerance {
  double relative, least;
};
// Of the type in which gradients are computed, or of a coarser one in which they are sent.
Tolerance tolerance_of(const TrainOptions& options);

class CaseComparison {
 public:
  CaseComparison(int rank, Tolerance tolerance) : rank_(rank), tolerance_(tolerance) {}

  // Numbers that depend on rounding.
  void near(const std::string& what, double got, double expected);
  // Numbers that do not.
  void equal(const std::string& what, std::int64_t got, std::int64_t predicted);
  // A part of a parameter; `all` is the norm of all parameters.
  void values(const std::string& what, std::span<const double> got,
              std::span<const double> expected, double all);
  // All parameters of the model.
  void parameters(const std::string& what, const std::vector<Parameter>& whole, const Values& got,
                  const Values& expected);

  const CaseCheck& check() const { return check_; }

 private:
  void differs(const std::string& what);

  int rank_;
  Tolerance tolerance_;
  CaseCheck check_;
};

double norm(std::span<const double> values);

}  // namespace lockstep
