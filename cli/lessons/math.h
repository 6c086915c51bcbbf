// Formulas as the program prints them, typeset as MathML, which browsers draw without a library.
#pragma once

#include <string>

namespace lockstep {

// "2(P-1)/P * Psi * beta" with a fraction and Greek letters. Words in it stay words: "+ norm". A line
// may end after a sum's signs and after a comma. What is no formula comes back as html_text.
std::string math_html(const std::string& formula);

}  // namespace lockstep
