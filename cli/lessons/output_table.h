// The output of a command on a lesson's page: its tables as tables, the rest as it was printed.
#pragma once

#include <string>

namespace lockstep {

struct OutputHtml {
  std::string html;
  int hidden = 0;           // number of omitted lines
  bool has_tables = false;  // so that the page also offers the output as it was printed
};
// The lines of `output` with a match of the regular expression `show`; all if it is empty. A table keeps
// the head that `show` omits. `data-keep` of a column's head says which columns a narrow page keeps
// longest (the highest).
OutputHtml output_html(const std::string& output, const std::string& show);

// Lines as they were printed, but sentences wrapped.
std::string printed_html(const std::string& text);

}  // namespace lockstep
