// A lesson's Markdown as text for a terminal: paragraphs and cells of tables are wrapped, links
// become their words, headings and code stand out.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

struct TerminalStyle {
  std::size_t width = 100;  // characters of a line
  bool in_color = false, is_terminal = false;
};
// The style for standard output; lines of 100 characters if it is not a terminal.
TerminalStyle style_of_terminal();

std::string terminal_text(const std::string& markdown, const TerminalStyle& style);

}  // namespace lockstep
