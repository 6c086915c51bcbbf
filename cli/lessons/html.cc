#include "cli/lessons/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

#include "cli/lessons/math.h"
#include "cli/share.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using PageNames = std::vector<std::string>;

// Links to lessons: to their pages, if there are such; else only their names.
std::string with_lesson_links(const std::string& text, const PageNames& pages) {
  static const std::regex lesson("\\[([^\\]]*)\\]\\((#|(?:\\.\\./)?([^)/]*)/lesson\\.md)[^)]*\\)");
  std::string html;
  auto end = text.cbegin();
  for (std::sregex_iterator it(text.begin(), text.end(), lesson), last; it != last; ++it) {
    const std::string words = (*it)[1], name = (*it)[3];
    html.append(end, text.cbegin() + it->position());
    html += std::ranges::count(pages, name) > 0
                ? fmt::format("<a href=\"../{}/lesson.html\">{}</a>", name, words)
                : words;
    end = text.cbegin() + it->position() + it->length();
  }
  return html.append(end, text.cend());
}

// Formats a line: code, bold, links. The page does not lie in the repository: it names files there.
// A line does not end after a hyphen in code.
std::string inline_html(const std::string& line, const PageNames& pages) {
  static const std::regex code("`([^`]*)`"), hyphens("[^ /]*-[^ /]*"), bold("\\*\\*([^*]*)\\*\\*"),
      link("\\[([^\\]]*)\\]\\((https?:[^)]*)\\)"),
      file("\\[([^\\]]*)\\]\\((?:\\.\\./)*([^)#]*)[^)]*\\)");
  std::string html;
  const std::string text = html_text(line);
  auto end = text.cbegin();
  const auto styled = [&](const std::string& part) {
    const std::string with_bold = std::regex_replace(part, bold, "<b>$1</b>");
    const std::string with_links = std::regex_replace(with_bold, link, "<a href=\"$2\">$1</a>");
    return std::regex_replace(with_lesson_links(with_links, pages), file, "$1 (<code>$2</code>)");
  };
  for (std::sregex_iterator it(text.begin(), text.end(), code), last; it != last; ++it) {
    html += styled({end, text.cbegin() + it->position()});
    html += "<code>" + std::regex_replace((*it)[1].str(), hyphens, "<span>$&</span>") + "</code>";
    end = text.cbegin() + it->position() + it->length();
  }
  return html + styled({end, text.cend()});
}

// Reads Markdown line by line; one block is open at a time, and items of a list within it.
class MarkdownReader {
 public:
  explicit MarkdownReader(const PageNames& pages) : pages_(pages) {}

  std::string read(const std::string& markdown) {
    std::istringstream lines(markdown);
    for (std::string line; std::getline(lines, line);) read_line(line);
    open("");
    return html_;
  }

 private:
  void read_line(const std::string& line) {
    static const std::regex heading("(#{1,3}) (.*)"), item("( *)(-|[0-9]+\\.) (.*)"),
        letter("^[a-d]\\. ");
    std::smatch found;
    if (line.empty()) {
      // Code continues after an empty line.
      if (block_ == "pre")
        html_ += "\n";
      else
        open("");
    } else if (line.starts_with("    ")) {
      open("pre");
      html_ += html_text(line.substr(4)) + "\n";
    } else if (std::regex_match(line, found, heading)) {
      open("");
      const auto level = found[1].length();
      html_ += fmt::format("<h{0} id=\"{2}\">{1}</h{0}>\n", level, inline_html(found[2], pages_),
                           html_text(anchor_of(found[2])));
    } else if (line.starts_with("|")) {
      add_row(line);
    } else if (std::regex_match(line, found, item)) {
      open("ul");
      const std::string words = found[3], mark = found[2] == "-" ? "" : found[2].str() + " ";
      const bool is_marked = !mark.empty() || std::regex_search(words, letter);
      html_ += fmt::format("<li style=\"margin-left:{}rem{}\">{}{}",
                           0.5 * static_cast<double>(found[1].length()),
                           is_marked ? ";list-style:none;text-indent:-1.3rem" : "", mark,
                           inline_html(words, pages_));
    } else {
      if (block_ != "ul") open("p");
      html_ += inline_html(line, pages_) + "\n";
    }
  }

  void add_row(const std::string& line) {
    const bool is_head = block_ != "table";
    const char* const tag = is_head ? "th" : "td";
    if (is_head) has_symbols_ = line.starts_with("| symbol |");
    open("table");
    // A head without words, or the line below a head.
    if (line.find_first_not_of("|- ") == std::string::npos) return;
    html_ += "<tr>";
    for (std::size_t begin = 1, end; (end = line.find('|', begin)) != std::string::npos;
         begin = end + 1) {
      const std::string cell = line.substr(begin, end - begin);
      const bool is_symbol = has_symbols_ && !is_head && begin == 1;
      html_ += fmt::format("<{0}>{1}</{0}>", tag,
                           is_symbol ? symbol_html(cell) : inline_html(cell, pages_));
    }
    html_ += "</tr>\n";
  }

  // A symbol or formula of a table of symbols, typeset, unless it has code or words only.
  std::string symbol_html(const std::string& cell) const {
    const std::size_t begin = cell.find_first_not_of(' ');
    const bool is_code = cell.find('`') != std::string::npos;
    if (begin == std::string::npos || is_code) return inline_html(cell, pages_);
    return math_html(cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
  }

  // "What if": what-if
  static std::string anchor_of(const std::string& heading) {
    std::string anchor;
    for (const char c : heading)
      anchor += c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return anchor;
  }

  // Closes the block that is open, unless it is of this kind, and opens one.
  void open(const std::string& block) {
    if (block == block_) return;
    while (html_.ends_with("\n\n")) html_.pop_back();  // empty lines after code
    if (!block_.empty()) html_ += "</" + block_ + ">\n";
    if (!block.empty()) html_ += "<" + block + ">";
    block_ = block;
  }

  const PageNames& pages_;
  std::string html_, block_;
  bool has_symbols_ = false;  // the table's first column
};

}  // namespace

std::string html_of_markdown(const std::string& markdown, const std::vector<std::string>& pages) {
  return MarkdownReader(pages).read(markdown);
}

std::string html_of_inline(const std::string& line, const std::vector<std::string>& pages) {
  return inline_html(line, pages);
}

// As an address, so that the names within several pictures do not clash.
std::string html_picture(const std::string& svg, const std::string& name) {
  std::string address;
  for (const char c : svg) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte >= 0x20 && byte < 0x7f &&
                          std::string_view("%#\"<>&").find(c) == std::string_view::npos;
    address += is_plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return fmt::format("<p class=\"picture\"><img alt=\"{}\" src=\"data:image/svg+xml,{}\"></p>\n",
                     html_text(name), address);
}

std::string html_frame(const std::string& page, const std::string& name) {
  return fmt::format(
      "<iframe title=\"{}\" onload=\"const page=this.contentDocument.body;"
      "new ResizeObserver(()=>{{this.style.height=page.offsetHeight+4+'px'}}).observe(page)\" "
      "srcdoc=\"{}\"></iframe>\n",
      html_text(name), html_text(page));
}

std::string html_page(const std::string& title, const std::string& body) {
  constexpr std::int64_t most_style_bytes = 1 << 20;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"><style>{}</style></head>\n"
      "<body>\n{}</body></html>\n",
      html_text(title), read_text(lessons_folder() + "/page.css", most_style_bytes), body);
}

}  // namespace lockstep
