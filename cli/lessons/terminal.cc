#include "cli/lessons/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <regex>
#include <sstream>
#include <vector>

namespace lockstep {
namespace {

constexpr std::string_view bold = "\033[1m", colored = "\033[36m", plain = "\033[0m";

// Characters on the screen: not the bytes that continue one in UTF-8, nor escape sequences.
std::size_t shown_length(const std::string& text) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = text.find('m', i);
      if (i == std::string::npos) break;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80) {
      ++length;
    }
  }
  return length;
}

// Words are not split, so a line can be longer than `width`.
std::vector<std::string> wrapped_lines(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    if (line.empty())
      line = word;
    else if (shown_length(line) + 1 + shown_length(word) <= width)
      line += " " + word;
    else
      lines.push_back(word);
  }
  return lines;
}

class TerminalWriter {
 public:
  explicit TerminalWriter(const TerminalStyle& style) : style_(style) {}

  std::string write(const std::string& markdown) {
    std::istringstream lines(markdown);
    for (std::string line; std::getline(lines, line);) add(line);
    end_block();
    return text_;
  }

 private:
  void add(const std::string& line) {
    static const std::regex heading("#{1,3} (.*)"), item("( *)(-|[0-9]+\\.|[a-d]\\.) (.*)");
    std::smatch found;
    const bool is_code = line.starts_with("    ") && paragraph_.empty();
    if (line.empty()) {
      end_block();
      text_ += "\n";
    } else if (line.starts_with("|")) {
      end_paragraph();
      add_row(line);
    } else if (std::regex_match(line, found, heading)) {
      end_block();
      text_ += styled(bold, found[1]) + "\n";
    } else if (std::regex_match(line, found, item)) {
      end_block();
      first_indent_ = found[1].str() + found[2].str() + " ";
      paragraph_ = found[3];
    } else if (is_code) {
      end_block();
      text_ += line + "\n";
    } else {
      paragraph_ += (paragraph_.empty() ? "" : " ") + line;
    }
  }

  std::string styled(std::string_view how, const std::string& text) const {
    if (!style_.in_color) return text;
    return std::string(how) + text + std::string(plain);
  }

  // The words of code, bold text and links. Every word of code has its own colour, so that lines can
  // end between them.
  std::string inline_text(const std::string& text) const {
    static const std::regex mark(
        "`([^`]*)`|\\*\\*([^*]*)\\*\\*|\\[([^\\]]*)\\]\\((https?:[^)]*)\\)|\\[([^\\]]*)\\]\\([^)]*"
        "\\)");
    std::string result;
    auto end = text.cbegin();
    for (std::sregex_iterator it(text.begin(), text.end(), mark), last; it != last; ++it) {
      const std::smatch& found = *it;
      result += std::string(end, text.cbegin() + found.position());
      end = text.cbegin() + found.position() + found.length();
      const std::string_view how = found[2].matched ? bold : colored;
      if (found[1].matched || found[2].matched) {
        std::istringstream words(found[1].matched ? found[1] : found[2]);
        std::string separator;
        for (std::string word; words >> word; separator = " ")
          result += separator + styled(how, word);
      } else if (found[3].matched) {
        result += found[3].str() + " (" + found[4].str() + ")";
      } else {
        result += found[5].str();
      }
    }
    return result + std::string(end, text.cend());
  }

  void end_paragraph() {
    if (paragraph_.empty()) return;
    const std::size_t indent = first_indent_.size(),
                      width = std::max(style_.width, indent + 20) - indent;
    std::string before = first_indent_;
    for (const std::string& line : wrapped_lines(inline_text(paragraph_), width)) {
      text_ += before + line + "\n";
      before = std::string(indent, ' ');
    }
    paragraph_.clear();
    first_indent_.clear();
  }

  void add_row(const std::string& line) {
    // A head without words, or the line below a head.
    if (line.find_first_not_of("|- ") == std::string::npos) return;
    std::vector<std::string>& row = rows_.emplace_back();
    for (std::size_t begin = 1, end; (end = line.find('|', begin)) != std::string::npos;
         begin = end + 1)
      row.push_back(inline_text(line.substr(begin, end - begin)));
  }

  // The widths of the columns: of their longest cells; if that is too much, the widest ones get less.
  std::vector<std::size_t> column_widths() const {
    constexpr std::size_t least = 8;
    std::vector<std::size_t> widths;
    for (const auto& row : rows_)
      for (std::size_t column = 0; column < row.size(); ++column) {
        if (column == widths.size()) widths.push_back(0);
        std::size_t length = 0;
        for (const std::string& line : wrapped_lines(row[column], std::string::npos))
          length = std::max(length, shown_length(line));
        widths[column] = std::max(widths[column], length);
      }
    const auto all = [&] {
      return std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
    };
    while (all() > style_.width) {
      const auto widest = std::ranges::max_element(widths);
      if (*widest <= least) break;
      --*widest;
    }
    return widths;
  }

  void end_table() {
    if (rows_.empty()) return;
    const std::vector<std::size_t> widths = column_widths();
    for (const auto& row : rows_) {
      std::vector<std::vector<std::string>> cells;
      std::size_t height = 0;
      for (std::size_t column = 0; column < row.size(); ++column) {
        cells.push_back(wrapped_lines(row[column], widths[column]));
        height = std::max(height, cells.back().size());
      }
      for (std::size_t i = 0; i < height; ++i) {
        std::string line;
        for (std::size_t column = 0; column < cells.size(); ++column) {
          const std::string cell = i < cells[column].size() ? cells[column][i] : "";
          const std::size_t length = shown_length(cell);
          line += cell + std::string(std::max(widths[column], length) - length + 2, ' ');
        }
        text_ += line.erase(line.find_last_not_of(' ') + 1) + "\n";
      }
    }
    rows_.clear();
  }

  void end_block() {
    end_paragraph();
    end_table();
  }

  TerminalStyle style_;
  std::string text_, paragraph_, first_indent_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace

TerminalStyle style_of_terminal() {
  TerminalStyle style;
  style.is_terminal = isatty(STDOUT_FILENO) != 0;
  if (!style.is_terminal) return style;
  constexpr std::size_t least = 40, most = 120;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.width = std::clamp<std::size_t>(size.ws_col, least, most);
  style.in_color = std::getenv("NO_COLOR") == nullptr;
  return style;
}

std::string terminal_text(const std::string& markdown, const TerminalStyle& style) {
  return TerminalWriter(style).write(markdown);
}

}  // namespace lockstep
