// Exact times: a bubble of 3/11 is 3/11.
//
// Compare a Rational with a Rational: in C++20 Boost 1.74's comparison with an integer calls itself
// for ever.
#pragma once

#include <fmt/format.h>

#include <boost/rational.hpp>
#include <cstdint>
#include <string>

namespace lockstep {

using Rational = boost::rational<std::int64_t>;

inline double value_of(const Rational& x) { return boost::rational_cast<double>(x); }
// "33", "57/2"
inline std::string text_of(const Rational& x) {
  return x.denominator() == 1 ? fmt::format("{}", x.numerator())
                              : fmt::format("{}/{}", x.numerator(), x.denominator());
}

// Reads "3", "0.25" or "1/3". Throws Error (bad_input) unless each part is a number of at most 6
// digits.
Rational rational_from(const std::string& text);

// How long a rank takes for one micro-batch, all its stages together; how long a message between
// two ranks takes; and how long the rank takes to unshard all its stages once and to reduce all
// their gradients once.
struct PassTimes {
  Rational forward = 1, input_gradient = 1, weight_gradient = 1;
  Rational hop = 0;
  Rational unshard = 0, reduce_gradients = 0;

  Rational backward() const { return input_gradient + weight_gradient; }
  // Of a whole micro-batch.
  Rational total() const { return forward + backward(); }
};

}  // namespace lockstep
