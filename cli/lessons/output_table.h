// The output of a command in a lesson, on its page or in a terminal: tables with the columns for which
// there is room, the rest as it was printed.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

struct ShownOutput {
  std::string text;         // HTML, or lines
  int hidden = 0;           // number of omitted lines
  bool has_tables = false;  // so that the page also offers the output as it was printed
};
// The lines of `output` with a match of the regular expression `show`; all if it is empty. A table keeps
// the head that `show` omits. `data-keep` of a column's head says which columns a narrow page keeps
// longest (the highest).
ShownOutput output_html(const std::string& output, const std::string& show);

// The same for a terminal of this width: a table leaves out the columns for which there is no room.
ShownOutput output_text(const std::string& output, const std::string& show, std::size_t width);

// Lines as they were printed, but sentences wrapped.
std::string printed_html(const std::string& text);

}  // namespace lockstep
