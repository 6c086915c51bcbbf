#include "cli/lessons/math.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <optional>
#include <vector>

#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// A formula's grammar; `*` may be left out:
//
//   list     sum {, sum}
//   sum      product {+ product | - product | = product}
//   product  factor {[*] factor | / factor}
//   factor   number | name | words | ( list )
class MathReader {
 public:
  explicit MathReader(const std::string& text) : text_(text) {}

  // Nothing where the text has a character that no formula has, or brackets that do not match.
  std::optional<std::string> read() {
    std::string html = list(/*breaks=*/true);
    if (is_bad_ || at_ < text_.size() || !is_formula_) return std::nullopt;
    return html;
  }

 private:
  struct Factor {
    std::string math;
    std::string inside;  // of brackets, which a fraction does not need
  };

  static std::string row(const std::string& math) { return "<mrow>" + math + "</mrow>"; }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char next() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  // With `breaks`, each product is a formula of its own, so that lines can end between them.
  std::string list(bool breaks) {
    const auto whole = [&](const std::string& math) {
      return breaks && !math.empty() ? "<math>" + math + "</math>" : math;
    };
    std::string result = whole(product());
    while (!is_bad_) {
      const char sign = next();
      if (sign != '+' && sign != '-' && sign != '=' && sign != ',') break;
      ++at_;
      is_formula_ = is_formula_ || sign != ',';
      const std::string mark = sign == '-' ? "−" : std::string(1, sign);
      const std::string written =
          sign == ',' ? "<mo separator=\"true\">,</mo>" : "<mo>" + mark + "</mo>";
      const std::string after = product();
      if (after.empty()) is_bad_ = true;
      result += breaks ? (sign == ',' ? ", " : " " + mark + " ") + whole(after) : written + after;
    }
    return result;
  }

  std::string product() {
    std::string result;
    std::optional<Factor> last = factor();
    for (bool is_times = false; last && !is_bad_;) {
      char sign = next();
      if (sign == '/') {
        ++at_;
        is_formula_ = true;
        const std::optional<Factor> below = factor();
        if (!below) return fail();
        const auto bare = [](const Factor& part) {
          return row(part.inside.empty() ? part.math : part.inside);
        };
        last = Factor{"<mfrac>" + bare(*last) + bare(*below) + "</mfrac>", ""};
        continue;
      }
      result += (is_times ? "<mo>⋅</mo>" : "") + last->math;
      is_times = sign == '*';
      if (is_times) {
        ++at_;
        is_formula_ = true;
      }
      last = factor();
      if (!last && is_times) return fail();
      if (last && !is_times) result += "<mspace width=\"0.25em\"></mspace>";
    }
    return result;
  }

  std::string fail() {
    is_bad_ = true;
    return "";
  }

  std::optional<Factor> factor() {
    const char first = next();
    const auto is_letter = [&](std::size_t i) {
      return i < text_.size() && std::isalpha(static_cast<unsigned char>(text_[i])) != 0;
    };
    const auto is_digit = [&](std::size_t i) {
      return i < text_.size() && std::isdigit(static_cast<unsigned char>(text_[i])) != 0;
    };
    const std::size_t begin = at_;
    if (first == '(') {
      ++at_;
      const std::string inside = list(/*breaks=*/false);
      if (next() != ')') {
        is_bad_ = true;
        return std::nullopt;
      }
      ++at_;
      is_formula_ = true;
      return Factor{"<mo stretchy=\"false\">(</mo>" + inside + "<mo stretchy=\"false\">)</mo>",
                    inside};
    }
    if (is_digit(at_)) {
      while (is_digit(at_) || (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(at_ + 1)))
        ++at_;
      return Factor{"<mn>" + text_.substr(begin, at_ - begin) + "</mn>", ""};
    }
    if (!is_letter(at_)) return std::nullopt;
    const auto read_word = [&] {
      const std::size_t from = at_;
      while (is_letter(at_) ||
             (at_ > from &&
              (is_digit(at_) || (at_ < text_.size() && (text_[at_] == '_' || text_[at_] == '\'')))))
        ++at_;
      return text_.substr(from, at_ - from);
    };
    std::string word = read_word();
    if (const std::string name = named(word); !name.empty()) {
      is_formula_ = is_formula_ || word == text_ || name.find("<mi>" + word) == std::string::npos;
      return Factor{name, ""};
    }
    if (word.find('_') != std::string::npos) is_bad_ = true;  // the name of something else
    // Words that follow each other are one text.
    for (std::size_t end = at_; next() != '\0' && is_letter(at_); end = at_) {
      const std::string more = read_word();
      if (more != "a" && !named(more).empty()) {  // "a" after a word is the article
        at_ = end;
        break;
      }
      word += " " + more;
    }
    return Factor{"<mtext>" + html_text(word) + "</mtext>", ""};
  }

  // A symbol: one letter, t and its kind (tF), or a Greek letter; with an index after _. Else "".
  static std::string named(const std::string& word) {
    static const std::map<std::string, std::string> greek = {
        {"Psi", "Ψ"}, {"beta", "β"}, {"alpha", "α"}};
    const std::size_t bar = word.find('_');
    const std::string head = word.substr(0, bar);
    std::string symbol;
    if (const auto found = greek.find(head); found != greek.end())
      symbol = "<mi>" + found->second + "</mi>";
    else if (head.size() == 1)
      symbol = "<mi>" + head + "</mi>";
    else if (head.size() == 2 &&
             (head[0] == 't' && std::isupper(static_cast<unsigned char>(head[1])) != 0))
      return "<msub><mi>t</mi><mi>" + head.substr(1) + "</mi></msub>";
    else if (head == "min" || head == "max" || head == "lg" || head == "log2")
      return "<mi>" + head + "</mi>";
    if (symbol.empty() || bar == std::string::npos) return symbol;
    return "<msub>" + symbol + "<mtext>" + html_text(word.substr(bar + 1)) + "</mtext></msub>";
  }

  const std::string& text_;
  std::size_t at_ = 0;
  bool is_bad_ = false;
  bool is_formula_ = false;  // an operator, brackets or a symbol: words alone are no formula
};

}  // namespace

std::string math_html(const std::string& formula) {
  return MathReader(formula).read().value_or(html_text(formula));
}

}  // namespace lockstep
