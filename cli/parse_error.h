// Explains why a command line cannot be parsed.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One line: the fault, the command it is in, and the command or flag that was probably meant.
std::string explain(const CLI::App& program, const CLI::ParseError& error);

// The candidate that was probably meant; empty if none is similar. Upper case, dashes and
// underscores do not count, and a beginning of three letters or more is enough.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
