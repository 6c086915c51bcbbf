// Compares the results of a fuzzed case on one rank: counts the comparisons and lists differences.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/parameters.h"
#include "parallel/plan/options.h"

namespace lockstep {

struct CaseCheck {
  std::int64_t compared = 0;             // numbers and parameters
  std::int64_t skipped_steps = 0;        // skipped because gradients overflowed
  std::int64_t turned_steps = 0;         // not compared, as rounding turned their gradients
  std::vector<std::string> differences;  // or the error with which the case ended
  bool has_ended = false;                // with an error
  bool is_refused = false;               // the error refused an input

  CaseCheck& operator+=(const CaseCheck& other);
};

using Values = std::vector<double>;  // of a whole model, one parameter after another

// Relative tolerances: of a loss or a norm, and of a parameter's gradient or value as an L2 norm,
// which is taken as at least `least` times the norm of all parameters. Some gradients, such as
// those of the bias of keys, are zero except for rounding.
struct Tolerance {
  double numbers = 0, gradients = 0, values = 0, least = 0;
};
// The tolerance against one rank in f64: for the type in which gradients are computed, or a coarser
// one in which they are sent.
Tolerance tolerance_of(const TrainOptions& options);
// The tolerance against one rank of the same type, which rounds the same numbers in a different
// order: about twice the largest differences among thousands of random plans.
Tolerance tolerance_of_type(const TrainOptions& options);
// The tolerance of compressed gradients against exact ones for the same weights, by what the method rounds to.
Tolerance tolerance_of_exchange(const TrainOptions& options);
// Returns the larger tolerance of each kind.
Tolerance loosest(const Tolerance& one, const Tolerance& other);

class CaseComparison {
 public:
  explicit CaseComparison(int rank) : rank_(rank) {}

  // Names what the following numbers are compared with: "on one rank".
  void against(std::string reference, const Tolerance& tolerance) {
    reference_ = std::move(reference);
    tolerance_ = tolerance;
  }
  void leave_out_turned_step() { ++check_.turned_steps; }
  // Compares numbers that depend on rounding, which may move one far more than usual: `rounding` is
  // how far it moved this one on one rank, and twice as far is allowed.
  void near(const std::string& what, double got, double expected, double rounding = 0);
  // Compares numbers that do not.
  void equal(const std::string& what, double got, double predicted);
  void equal(const std::string& what, std::int64_t got, std::int64_t predicted) {
    equal(what, static_cast<double>(got), static_cast<double>(predicted));
  }
  void at_most(const std::string& what, double got, double bound);
  void require_that(bool condition, const std::string& otherwise);
  // Compares a part of a parameter's values; `all` is the norm of all parameters.
  void values(const std::string& what, std::span<const double> got,
              std::span<const double> expected, double all) {
    near(what, got, expected, all, tolerance_.values);
  }
  // Compares all parameters of the model.
  void gradients(const std::string& what, const std::vector<Parameter>& whole, const Values& got,
                 const Values& expected) {
    near(what, whole, got, expected, tolerance_.gradients);
  }
  void values(const std::string& what, const std::vector<Parameter>& whole, const Values& got,
              const Values& expected) {
    near(what, whole, got, expected, tolerance_.values);
  }

  const CaseCheck& check() const { return check_; }

 private:
  void near(const std::string& what, std::span<const double> got, std::span<const double> expected,
            double all, double tolerance);
  void near(const std::string& what, const std::vector<Parameter>& whole, const Values& got,
            const Values& expected, double tolerance);

  int rank_;
  std::string reference_;
  Tolerance tolerance_ = {};
  CaseCheck check_;
};

double norm(std::span<const double> values);

}  // namespace lockstep
