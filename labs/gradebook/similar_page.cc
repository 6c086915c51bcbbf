// Similar submissions as a page, their lines side by side.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "collectives/base/printable.h"
#include "labs/gradebook/similar.h"

namespace lockstep {
namespace {

constexpr std::string_view similar_style = R"(
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 90rem; margin: 2rem auto; padding: 0 1rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 0 1rem; }
pre { overflow-x: auto; background: #8881; padding: .5rem; margin: .3rem 0; font-size: .85rem; }
)";

std::string numbered_lines(const std::vector<std::string>& text, int begin, int end) {
  std::string html;
  for (int line = begin; line <= std::min<int>(end, static_cast<int>(text.size())); ++line)
    html += fmt::format("{:>4}  {}\n", line, html_text(text[static_cast<std::size_t>(line) - 1]));
  return "<pre>" + html + "</pre>\n";
}

std::string details_of(const SimilarPair& pair) {
  std::string html = fmt::format(
      "<details>\n<summary>{} and {}: {}, rarity {:.2f}, {:.0f}% of the shorter "
      "one</summary>\n<div class=\"pair\">\n",
      html_text(pair.first), html_text(pair.second), html_text(pair.file), pair.rarity,
      100 * pair.share);
  for (const SimilarLines& each : pair.lines)
    html += numbered_lines(pair.first_text, each.first_begin, each.first_end) +
            numbered_lines(pair.second_text, each.second_begin, each.second_end);
  return html + "</div>\n</details>\n";
}

}  // namespace

std::string page_of(const std::vector<std::pair<const Lab*, SimilarSources>>& labs) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>Similar submissions</title>\n<style>{}</style>\n"
      "<h1>Similar submissions</h1>\n<p>Code that is short and right often looks alike: read the "
      "lines, and ask the students. Names, numbers, comments and what the skeleton has do not "
      "count. A run of tokens counts 1 for rarity if only these two have it, less the more "
      "submissions have it.</p>\n",
      similar_style);
  for (const auto& [lab, similar] : labs) {
    html += fmt::format("<h2>Lab {}: {}</h2>\n", lab->number, html_text(lab->title));
    for (const SimilarPair& pair : similar.pairs) html += details_of(pair);
    if (similar.pairs.empty()) html += "<p>No two resemble each other.</p>\n";
  }
  return html + "</html>\n";
}

}  // namespace lockstep
