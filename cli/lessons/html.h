// HTML: a page from text in Markdown, and pictures.
#pragma once

#include <string>

namespace lockstep {

// The Markdown that lessons use, as HTML: headings, paragraphs, lists, tables, code, bold, links.
// Links into the source tree become plain text, since the page may lie anywhere.
std::string html_of_markdown(const std::string& markdown);
// An SVG file as a picture within the page.
std::string html_picture(const std::string& svg, const std::string& name);
// A page within the page, as high as its content.
std::string html_frame(const std::string& page, const std::string& name);
// The whole page.
std::string html_page(const std::string& title, const std::string& body);

}  // namespace lockstep
