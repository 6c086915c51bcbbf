// Closed forms of the program that a reader can try with sliders: names, ranges, and values.
// lessons/play_formulas.js computes the same in a browser; a test compares the two.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Where a slider stops: at whole numbers, at powers of two, or at 1, 2, 5, 10, 20, 50, ...
enum class Scale : char { whole, doubling, decimal };

struct FormulaInput {
  std::string_view name, label, unit;
  Scale scale = Scale::whole;
  double low = 1, high = 1, at = 1;

  // All values from `low` to `high`.
  std::vector<double> stops() const;
};

struct FormulaOutput {
  std::string_view name, label, unit;  // s, bytes, bytes/s, %, or words
};

using FormulaValues = std::map<std::string, double, std::less<>>;

struct Formula {
  std::string_view name;
  std::vector<FormulaInput> inputs;
  std::vector<FormulaOutput> outputs;
  // In the order of `outputs`. Empty where the formula does not hold.
  std::vector<std::optional<double>> (*evaluate)(const FormulaValues&);
  std::string_view picture = "chart";  // below the sliders: or ring
};

const std::vector<Formula>& formulas();
// Throws Error (bad_input) listing the formulas there are.
const Formula& find_formula(std::string_view name);

// A formula's inputs and outputs, without values.
nlohmann::ordered_json described(const Formula& formula);
// The same with its values at `number` random points of the inputs' stops: always the same points.
nlohmann::ordered_json table_of(const Formula& formula, int number);

}  // namespace lockstep
