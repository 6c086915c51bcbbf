// Submissions of a lab that resemble one another or our solution, with the lines to compare. It says
// nothing about why: short code that is right often looks alike.
#pragma once

#include <string>
#include <vector>

#include "labs/gradebook/class_folder.h"

namespace lockstep {

// Lines of two sources that have the same tokens.
struct SimilarLines {
  int first_begin = 0, first_end = 0, second_begin = 0, second_end = 0;  // from 1, inclusive
};

struct SimilarPair {
  // A submission's folder in the class, or `our_solution`.
  std::string first, second;
  std::string file;
  double share = 0;  // of the fingerprints of the shorter one
  // Each shared fingerprint counts 1 if only these two have it, 1 / (n - 1) if n submissions do.
  double rarity = 0;
  std::vector<SimilarLines> lines;
  std::vector<std::string> first_text, second_text;  // lines
};

inline constexpr const char* our_solution = "our solution";

struct SimilarSources {
  std::vector<SimilarPair> pairs;       // by rarity, then by share
  std::vector<std::string> unreadable;  // a sentence each
};

// Compares each file of a lab's submissions, but not those of one student, and what the skeleton has
// does not count. At most `most` pairs.
SimilarSources similar_sources(const ClassFolder& all, const Lab& lab,
                               const std::string& source_folder, std::size_t most);

// The pairs of one lab as a table, and of several as a page with their lines side by side.
std::string table_of(const Lab& lab, const SimilarSources& similar);
std::string page_of(const std::vector<std::pair<const Lab*, SimilarSources>>& labs);

}  // namespace lockstep
