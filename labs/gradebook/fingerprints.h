// What is left of a source when names, numbers, comments and layout are gone, to compare sources by.
//
// A source becomes tokens, in which all names are one token, and so are all numbers and all texts.
// Each run of `run_tokens` tokens has a hash; of each `window` hashes in a row the least is kept, with
// its place. So two sources that share run_tokens + window - 1 tokens in a row share a fingerprint,
// wherever these tokens stand. Schleimer, Wilkerson and Aiken, "Winnowing: local algorithms for
// document fingerprinting", SIGMOD 2003.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr int run_tokens = 12, window = 4;

struct Token {
  std::string text;  // "n" of a name, "0" of a number, "s" of a text
  int line = 0;      // from 1
};

// Without comments and the lines of the preprocessor.
std::vector<Token> tokens_of(const std::string& source);

struct Fingerprint {
  std::uint64_t hash = 0;
  int first_line = 0, last_line = 0;
};

// Of every run of tokens, in order.
std::vector<Fingerprint> all_fingerprints(const std::vector<Token>& tokens);
// Those that are kept, in order.
std::vector<Fingerprint> kept_fingerprints(const std::vector<Fingerprint>& all);

}  // namespace lockstep
