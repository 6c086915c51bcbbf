#include "cli/lessons/html.h"

#include <fmt/format.h>

#include <regex>
#include <sstream>

#include "collectives/base/printable.h"

namespace lockstep {
namespace {

constexpr std::string_view page_style =
    ":root{color-scheme:light dark;--text:#222;--page:#fff;--panel:#f4f4f4;--commands:#e8eef7;"
    "--line:#bbb;--link:#0645ad}"
    "@media(prefers-color-scheme:dark){:root{--text:#e6e6e6;--page:#15181d;--panel:#22262d;"
    "--commands:#1f2b3d;--line:#4a515e;--link:#8ab8ff}}"
    "*{box-sizing:border-box}"
    "body{max-width:60rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 sans-serif;"
    "color:var(--text);background:var(--page);overflow-wrap:break-word}"
    "a{color:var(--link)}"
    "pre{background:var(--panel);padding:.6rem;overflow-x:auto;font-size:13px}"
    "pre.commands{background:var(--commands);white-space:pre-wrap}"
    "code{background:var(--panel)}code span{white-space:nowrap}"
    ".sentence{white-space:pre-wrap}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}"
    "td,th{border:1px solid var(--line);padding:.2rem .6rem;text-align:left}"
    ".picture{overflow-x:auto}.picture img{max-width:max(100%,48rem);background:#fff}"
    "[hidden]{display:none!important}"
    "details{margin:.4rem 0 1rem}summary{cursor:pointer}"
    "button{font:inherit;padding:.1rem .7rem;cursor:pointer}"
    ".ask,.gate{border-left:3px solid var(--link);padding:.1rem 0 .1rem .8rem;margin:.6rem 0 1rem}"
    ".ask form{display:flex;flex-wrap:wrap;gap:.4rem .8rem;align-items:center}"
    ".ask input[type=text]{font:inherit;width:10rem;max-width:100%}"
    ".ask fieldset{display:flex;flex-wrap:wrap;gap:.2rem 1rem;border:0;margin:0;padding:0}"
    ".ask details{margin:.3rem 0}.ask p{margin:.3rem 0}"
    "iframe{width:100%;height:60rem;border:1px solid var(--line);border-radius:8px}"
    ".play{border:1px solid var(--line);border-radius:8px;padding:.8rem 1rem;margin:1rem 0}"
    ".play .sliders{display:grid;gap:.6rem 1.5rem;"
    "grid-template-columns:repeat(auto-fit,minmax(min(16rem,100%),1fr))}"
    ".play label{display:grid;grid-template-columns:1fr auto}"
    ".play input{grid-column:1/-1;width:100%;margin:.2rem 0;min-height:1.5rem}"
    ".play output,.play td{font-weight:600;font-variant-numeric:tabular-nums}"
    ".play .figures{margin:.8rem 0}.play td{min-width:8rem}"
    ".play th{font-weight:400;padding-left:1.9rem;text-indent:-1.3rem}"
    ".play .key{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;"
    "margin-right:.5rem}"
    ".play .fixed,.play figcaption{font-size:.85rem;margin:.3rem 0}"
    ".play figure{margin:0}.play svg{width:100%;max-width:44rem;display:block}"
    ".play svg text{fill:var(--text);font-size:12px}"
    ".play svg .rank{fill:var(--panel);stroke:var(--line)}"
    ".play svg .rank.asked{stroke:var(--text);stroke-width:2.5}"
    ".play svg .block{transition:transform .9s}"
    ".play svg .block rect{fill-opacity:.25;stroke-width:2}"
    ".play svg .block .ground{fill:var(--page);fill-opacity:1}"
    "@media(prefers-reduced-motion:reduce){.play svg .block{transition:none}}"
    ".play .ring{font-size:.85rem}"
    ".play .ring th,.play .ring td{font-weight:400;text-align:right;text-indent:0;"
    "padding:.1rem .3rem;min-width:0;white-space:nowrap}"
    ".play .ring tr.now{background:var(--commands)}"
    ".play .axis,.play .here{stroke:var(--line);fill:none}.play .here{stroke-dasharray:3 3}";

// Formats a line: code, bold, links. The page does not lie in the repository: it names files there,
// and the text names other lessons. A line does not end after a hyphen in code.
std::string inline_html(const std::string& line) {
  static const std::regex code("`([^`]*)`"), hyphens("[^ /]*-[^ /]*"), bold("\\*\\*([^*]*)\\*\\*"),
      link("\\[([^\\]]*)\\]\\((https?:[^)]*)\\)"),
      lesson("\\[([^\\]]*)\\]\\((?:#|[^)]*/lesson\\.md)[^)]*\\)"),
      file("\\[([^\\]]*)\\]\\((?:\\.\\./)*([^)#]*)[^)]*\\)");
  std::string html;
  const std::string text = html_text(line);
  auto end = text.cbegin();
  const auto styled = [&](const std::string& part) {
    const std::string with_bold = std::regex_replace(part, bold, "<b>$1</b>");
    const std::string with_links = std::regex_replace(with_bold, link, "<a href=\"$2\">$1</a>");
    const std::string with_lessons = std::regex_replace(with_links, lesson, "$1");
    return std::regex_replace(with_lessons, file, "$1 (<code>$2</code>)");
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
      html_ += fmt::format("<h{0}>{1}</h{0}>\n", level, inline_html(found[2]));
    } else if (line.starts_with("|")) {
      add_row(line);
    } else if (std::regex_match(line, found, item)) {
      open("ul");
      const std::string words = found[3], mark = found[2] == "-" ? "" : found[2].str() + " ";
      const bool is_marked = !mark.empty() || std::regex_search(words, letter);
      html_ += fmt::format(
          "<li style=\"margin-left:{}rem{}\">{}{}", 0.5 * static_cast<double>(found[1].length()),
          is_marked ? ";list-style:none;text-indent:-1.3rem" : "", mark, inline_html(words));
    } else {
      if (block_ != "ul") open("p");
      html_ += inline_html(line) + "\n";
    }
  }

  void add_row(const std::string& line) {
    const char* const cell = block_ == "table" ? "td" : "th";
    open("table");
    // A head without words, or the line below a head.
    if (line.find_first_not_of("|- ") == std::string::npos) return;
    html_ += "<tr>";
    for (std::size_t begin = 1, end; (end = line.find('|', begin)) != std::string::npos;
         begin = end + 1)
      html_ += fmt::format("<{0}>{1}</{0}>", cell, inline_html(line.substr(begin, end - begin)));
    html_ += "</tr>\n";
  }

  // Closes the block that is open, unless it is of this kind, and opens one.
  void open(const std::string& block) {
    if (block == block_) return;
    while (html_.ends_with("\n\n")) html_.pop_back();  // empty lines after code
    if (!block_.empty()) html_ += "</" + block_ + ">\n";
    if (!block.empty()) html_ += "<" + block + ">";
    block_ = block;
  }

  std::string html_, block_;
};

}  // namespace

std::string html_of_markdown(const std::string& markdown) {
  return MarkdownReader().read(markdown);
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
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"><style>{}</style></head>\n"
      "<body>\n{}</body></html>\n",
      html_text(title), page_style, body);
}

}  // namespace lockstep
