// HTML: a page from text in Markdown, and pictures.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The Markdown that lessons use, as HTML: headings, paragraphs, lists, tables, code, bold, links.
// Links to lessons lead to those of `pages`, names of folders next to the page's; other links into the
// source tree become plain text, since the page may lie anywhere.
std::string html_of_markdown(const std::string& markdown, const std::vector<std::string>& pages);
// The same for a part of a line.
std::string html_of_inline(const std::string& line, const std::vector<std::string>& pages);
// An SVG file as a picture within the page.
std::string html_picture(const std::string& svg, const std::string& name);
// A page within the page, as high as its content.
std::string html_frame(const std::string& page, const std::string& name);
// The whole page.
std::string html_page(const std::string& title, const std::string& body);

}  // namespace lockstep
