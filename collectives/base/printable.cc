#include "collectives/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace lockstep {
namespace {

struct Utf8Character {
  std::size_t bytes = 0;  // 0: there is none
  unsigned code = 0;
};

Utf8Character character_at(std::string_view text) {
  const auto byte = [&](std::size_t place) {
    return place < text.size() ? static_cast<unsigned char>(text[place]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return {text.empty() ? 0U : 1U, first};
  if (first < 0xc2 || first > 0xf4) return {};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & 0x7fU >> bytes;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  // An overlong form, half of a surrogate pair, or beyond Unicode.
  const unsigned least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {bytes, code};
}

std::string replaced(std::string_view text,
                     std::initializer_list<std::pair<char, std::string_view>> replacements) {
  std::string result;
  for (const char c : text) {
    const auto* const found =
        std::ranges::find(replacements, c, &std::pair<char, std::string_view>::first);
    result += found == replacements.end() ? std::string_view(&c, 1) : found->second;
  }
  return result;
}

}  // namespace

std::size_t utf8_length(std::string_view text) { return character_at(text).bytes; }

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::size_t printable_length(std::string_view text) {
  const auto [bytes, code] = character_at(text);
  const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  return is_control || code == 0xfffe || code == 0xffff ? 0 : bytes;
}

std::string printable(std::string_view text, bool keeps_lines) {
  std::string shown;
  while (!text.empty()) {
    const bool stays = keeps_lines && (text.front() == '\n' || text.front() == '\t');
    const std::size_t length = stays ? 1 : printable_length(text);
    if (length > 0)
      shown += text.substr(0, length);
    else
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return shown;
}

std::string html_text(std::string_view text) {
  return replaced(printable(text, /*keeps_lines=*/true),
                  {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}});
}

std::string markdown_cell(std::string_view text) {
  return replaced(printable(text, /*keeps_lines=*/true),
                  {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'|', "\\|"}, {'\n', "<br>"}});
}

}  // namespace lockstep
