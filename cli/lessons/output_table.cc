#include "cli/lessons/output_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <vector>

#include "cli/lessons/math.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

struct OutputLine {
  std::string text;
  bool is_shown;
};

// The columns of one table, found from the spaces that all of its rows share.
struct OutputColumn {
  std::size_t begin, end;  // of its cells
  bool is_right = false;   // aligned
  std::string head;
};

constexpr std::size_t no_end = std::string::npos;

std::size_t cells_in(const std::string& line) {
  static const std::regex gap("\\S {2,}(?=\\S)");
  return 1 +
         std::distance(std::sregex_iterator(line.begin(), line.end(), gap), std::sregex_iterator());
}

bool is_ascii(const std::string& line) {
  return std::ranges::all_of(line, [](char c) { return c >= 0x20 && c < 0x7f; });
}

// Heads of the tables that the program prints: of closed forms, of benchmarks (#), of plans.
bool is_table_head(const std::string& line) {
  constexpr std::size_t fewest_cells = 4;
  return is_ascii(line) && cells_in(line) >= fewest_cells &&
         (line.starts_with("quantity ") || line.starts_with("#") || line.starts_with("  rank "));
}

bool is_table_row(const std::string& line) {
  return is_ascii(line) && !line.starts_with("#") && !line.starts_with("lockstep: ") &&
         cells_in(line) >= 3 && line.find(".svg: ") == std::string::npos;
}

// Which columns a narrow page keeps longest. The first column stays; others go from the right.
int kept_longest(const std::string& head, std::size_t number) {
  static const std::map<std::string, int> kept = {{"quantity", 99},
                                                  {"measured", 98},
                                                  {"closed form", 97},
                                                  {"expected", 96},
                                                  {"algorithm", 98},
                                                  {"size (B)", 99},
                                                  {"time (us) out-of-place", 97},
                                                  {"busbw (GB/s) out-of-place", 96},
                                                  {"model (us)", 95},
                                                  {"time (us) in-place", 94},
                                                  {"#wrong in-place", 20},
                                                  {"#wrong out-of-place", 21}};
  const auto found = kept.find(head);
  return found != kept.end() ? found->second : number == 0 ? 100 : 80 - static_cast<int>(number);
}

class OutputTable {
 public:
  // `rows` must have a column in common.
  OutputTable(const std::vector<std::string>& heads, const std::vector<std::string>& rows) {
    find_columns(rows);
    for (const std::string& head : heads) add_head(head);
    name_repeated_heads();
  }

  std::size_t size() const { return columns_.size(); }

  std::string html(const std::vector<std::string>& rows) const {
    std::string text = "<div class=\"output\"><table><thead><tr>";
    for (std::size_t i = 0; i < columns_.size(); ++i)
      text += fmt::format("<th scope=\"col\" data-keep=\"{}\"{}>{}</th>",
                          kept_longest(columns_[i].head, i), side(columns_[i]),
                          html_text(columns_[i].head));
    text += "</tr></thead><tbody>\n";
    for (const std::string& row : rows) {
      text += "<tr>";
      for (const OutputColumn& column : columns_) {
        const std::string cell = cell_of(row, column);
        text += fmt::format("<td{}>{}</td>", side(column),
                            column.head == "closed form" ? math_html(cell) : html_text(cell));
      }
      text += "</tr>\n";
    }
    return text + "</tbody></table></div>\n";
  }

  // Heads and rows in columns of text, without the columns that matter least.
  std::string text(const std::vector<std::string>& rows, std::size_t width) const {
    std::vector<std::size_t> widths, order;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      std::size_t widest = columns_[i].head.size();
      for (const std::string& row : rows)
        widest = std::max(widest, cell_of(row, columns_[i]).size());
      widths.push_back(widest);
      order.push_back(i);
    }
    std::ranges::stable_sort(order, {},
                             [&](std::size_t i) { return kept_longest(columns_[i].head, i); });
    constexpr std::size_t gap = 2, fewest = 2;
    std::size_t total = 0, left = columns_.size();
    for (const std::size_t one : widths) total += one + gap;
    for (const std::size_t i : order) {
      if (total <= width + gap || left == fewest) break;
      total -= widths[i] + gap;
      widths[i] = 0;
      --left;
    }
    std::string result = line_of(widths, [](const OutputColumn& column) { return column.head; });
    for (const std::string& row : rows)
      result += line_of(widths, [&](const OutputColumn& column) { return cell_of(row, column); });
    return result;
  }

 private:
  static const char* side(const OutputColumn& column) {
    return column.is_right ? " class=\"right\"" : "";
  }

  // Of the columns that have a width.
  template <typename CellOf>
  std::string line_of(const std::vector<std::size_t>& widths, const CellOf& cell) const {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (widths[i] > 0)
        line += columns_[i].is_right ? fmt::format("{:>{}}  ", cell(columns_[i]), widths[i])
                                     : fmt::format("{:<{}}  ", cell(columns_[i]), widths[i]);
    return line.erase(line.find_last_not_of(' ') + 1) + "\n";
  }

  static std::string cell_of(const std::string& row, const OutputColumn& column) {
    if (column.begin >= row.size()) return "";
    const std::string cell = row.substr(column.begin, column.end - column.begin);
    const std::size_t first = cell.find_first_not_of(' ');
    return first == no_end ? "" : cell.substr(first, cell.find_last_not_of(' ') + 1 - first);
  }

  // Columns are two spaces apart in every row.
  void find_columns(const std::vector<std::string>& rows) {
    std::string taken;
    for (const std::string& row : rows) {
      taken.resize(std::max(taken.size(), row.size()), ' ');
      for (std::size_t i = 0; i < row.size(); ++i)
        if (row[i] != ' ') taken[i] = 'x';
    }
    for (std::size_t at = taken.find('x'); at != no_end; at = taken.find('x', at)) {
      const std::size_t end = std::min(taken.find("  ", at), taken.size());
      columns_.push_back({.begin = at, .end = end, .head = ""});
      at = end;
    }
    for (OutputColumn& column : columns_)
      column.is_right = std::ranges::all_of(rows, [&](const std::string& row) {
        const std::string cell = cell_of(row, column);
        return cell.empty() || (column.end <= row.size() && row[column.end - 1] != ' ' &&
                                std::string_view("-0123456789N").find(cell[0]) != no_end);
      });
  }

  // A head's word ends where its column of numbers ends, or before the next column begins.
  void add_head(const std::string& line) {
    if (line.find("out-of-place") != no_end) return;  // above four columns each
    for (std::size_t begin = line.find_first_not_of("# "), end; begin < line.size();
         begin = line.find_first_not_of(' ', end)) {
      end = std::min(line.find(' ', begin), line.size());
      std::size_t i = 0;
      while (i + 1 < columns_.size() &&
             end > (columns_[i].is_right ? columns_[i].end : columns_[i + 1].begin))
        ++i;
      std::string& head = columns_[i].head;
      head += (head.empty() ? "" : " ") + line.substr(begin, end - begin);
    }
  }

  // Benchmarks measure twice.
  void name_repeated_heads() {
    for (std::size_t i = 0; i < columns_.size(); ++i)
      for (std::size_t j = i + 1; j < columns_.size(); ++j)
        if (!columns_[i].head.empty() && columns_[i].head == columns_[j].head &&
            columns_[i].head.find("form") == no_end) {
          columns_[i].head += " out-of-place";
          columns_[j].head += " in-place";
        }
  }

  std::vector<OutputColumn> columns_;
};

class OutputReader {
 public:
  // Without a width: for a page.
  OutputReader(std::vector<OutputLine> lines, std::optional<std::size_t> width)
      : lines_(std::move(lines)), width_(width) {}

  ShownOutput read() {
    while (at_ < lines_.size())
      if (!read_table()) {
        if (lines_[at_].is_shown)
          printed_ += lines_[at_].text + "\n";
        else
          ++result_.hidden;
        ++at_;
      }
    end_printed();
    return result_;
  }

 private:
  // Reads a table's heads and rows; false if none begins here.
  bool read_table() {
    constexpr std::size_t fewest_columns = 3;
    std::size_t end = at_;
    std::vector<std::string> heads, rows, shown;
    for (; end < lines_.size() && is_table_head(lines_[end].text); ++end)
      heads.push_back(lines_[end].text);
    const std::size_t first_row = end;
    for (; !heads.empty() && end < lines_.size() && is_table_row(lines_[end].text) &&
           !is_table_head(lines_[end].text);
         ++end) {
      rows.push_back(lines_[end].text);
      if (lines_[end].is_shown) shown.push_back(lines_[end].text);
    }
    if (shown.empty()) return false;
    const OutputTable table(heads, rows);
    if (table.size() < fewest_columns || (width_ && fits(shown))) return false;
    end_printed();
    result_.text += width_ ? table.text(shown, *width_) : table.html(shown);
    result_.has_tables = true;
    for (std::size_t i = at_; i < end; ++i)
      if (!lines_[i].is_shown && i >= first_row) ++result_.hidden;
    at_ = end;
    return true;
  }

  bool fits(const std::vector<std::string>& rows) const {
    return std::ranges::all_of(rows, [&](const std::string& row) { return row.size() <= *width_; });
  }

  void end_printed() {
    if (width_)
      result_.text += printed_;
    else if (!printed_.empty())
      result_.text += fmt::format("<pre class=\"shown\">{}</pre>\n", printed_html(printed_));
    printed_.clear();
  }

  std::vector<OutputLine> lines_;
  std::optional<std::size_t> width_;
  std::size_t at_ = 0;
  std::string printed_;
  ShownOutput result_;
};

std::vector<OutputLine> lines_of(const std::string& output, const std::string& show) {
  const std::regex is_shown(show);
  std::vector<OutputLine> lines;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);)
    lines.push_back({.text = line, .is_shown = show.empty() || std::regex_search(line, is_shown)});
  return lines;
}

}  // namespace

// Reports and findings are sentences, whose lines are too long for a page; all else is in columns.
std::string printed_html(const std::string& text) {
  std::istringstream lines(text);
  std::string html;
  for (std::string line; std::getline(lines, line);) {
    const bool is_sentence =
        line.starts_with("lockstep: ") || line.find(".svg: ") != std::string::npos;
    html += is_sentence ? fmt::format("<span class=\"sentence\">{}</span>\n", html_text(line))
                        : html_text(line) + "\n";
  }
  return html;
}

ShownOutput output_html(const std::string& output, const std::string& show) {
  return OutputReader(lines_of(output, show), {}).read();
}

ShownOutput output_text(const std::string& output, const std::string& show, std::size_t width) {
  return OutputReader(lines_of(output, show), width).read();
}

}  // namespace lockstep
