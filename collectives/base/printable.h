// Text of unknown origin, such as a file's name or its content, made safe to show: control
// characters are commands on a terminal, and so are angle brackets in HTML.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// The text with control characters and bytes that are not UTF-8 written as \x1b. The result is one
// line, unless `keeps_lines`: then line feeds and tabs stay.
std::string printable(std::string_view text, bool keeps_lines = false);
// The same for HTML and XML: < > & and quotes are also escaped, and lines stay.
std::string html_text(std::string_view text);
// The same for a cell of a table in Markdown, which may hold HTML: its lines are joined by <br>.
std::string markdown_cell(std::string_view text);

// The length of the UTF-8 character at the beginning of the text; 0 if there is none.
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);
// The same, but also 0 for a control character and for code points that Unicode reserves as
// noncharacters.
std::size_t printable_length(std::string_view text);

}  // namespace lockstep
