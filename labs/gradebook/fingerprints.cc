#include "labs/gradebook/fingerprints.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "collectives/base/checksum.h"

namespace lockstep {
namespace {

// Words that say what code does; other words are names.
bool is_keyword(const std::string& word) {
  static const std::set<std::string> keywords = {
      "auto",      "bool",      "break",    "case",     "char",    "class",    "const",
      "constexpr", "continue",  "default",  "delete",   "do",      "double",   "else",
      "enum",      "explicit",  "false",    "float",    "for",     "if",       "int",
      "long",      "namespace", "new",      "noexcept", "nullptr", "operator", "private",
      "public",    "return",    "short",    "signed",   "sizeof",  "static",   "static_cast",
      "struct",    "switch",    "template", "this",     "throw",   "true",     "typename",
      "unsigned",  "using",     "virtual",  "void",     "while"};
  return keywords.contains(word);
}

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n')
        begins_line_ = true, ++line_, ++at_;
      else if (std::isspace(static_cast<unsigned char>(c)) != 0)
        ++at_;
      else if (text_.substr(at_, 2) == "//" || (c == '#' && begins_line_))
        skip_to(text_.find('\n', at_));
      else if (text_.substr(at_, 2) == "/*")
        skip_to(text_.find("*/", at_ + 2), 2);
      else
        read_token(c);
    }
    return std::move(tokens_);
  }

 private:
  void skip_to(std::size_t end, std::size_t more = 0) {
    end = end == std::string_view::npos ? text_.size() : end + more;
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  void read_token(char c) {
    begins_line_ = false;
    const int line = line_;
    std::size_t end = at_ + 1;
    std::string text(1, c);
    if (is_of_word(c)) {
      const bool is_number = std::isdigit(static_cast<unsigned char>(c)) != 0;
      while (end < text_.size() &&
             (is_of_word(text_[end]) || (is_number && (text_[end] == '.' || text_[end] == '\''))))
        ++end;
      const std::string word(text_.substr(at_, end - at_));
      text = is_number ? "0" : is_keyword(word) ? word : "n";
    } else if (c == '"' || c == '\'') {
      while (end < text_.size() && text_[end] != c && text_[end] != '\n')
        end += text_[end] == '\\' ? 2 : 1;
      if (end < text_.size() && text_[end] == c) ++end;
      text = "s";
    }
    tokens_.push_back({.text = std::move(text), .line = line});
    skip_to(std::min(end, text_.size()));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool begins_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(const std::string& source) { return Lexer(source).read(); }

std::vector<Fingerprint> all_fingerprints(const std::vector<Token>& tokens) {
  std::vector<Fingerprint> all;
  for (std::size_t i = 0; i + run_tokens <= tokens.size(); ++i) {
    std::string run;
    for (std::size_t j = i; j < i + run_tokens; ++j) run += tokens[j].text + " ";
    all.push_back({.hash = checksum(run),
                   .first_line = tokens[i].line,
                   .last_line = tokens[i + run_tokens - 1].line});
  }
  return all;
}

std::vector<Fingerprint> kept_fingerprints(const std::vector<Fingerprint>& all) {
  std::vector<Fingerprint> kept;
  std::size_t last = all.size();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t end = std::min(all.size(), i + window);
    if (end - i < window && i > 0) break;
    // Of equal ones the last, so that the next windows keep the same.
    std::size_t least = i;
    for (std::size_t j = i; j < end; ++j)
      if (all[j].hash <= all[least].hash) least = j;
    if (least != last) kept.push_back(all[least]);
    last = least;
  }
  return kept;
}

}  // namespace lockstep
