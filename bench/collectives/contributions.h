// Which ranks' data each rank holds while a collective runs, message by message.
//
// Every element of rank r's data is 8^r. Then the octal digit r of a sum says how often rank r's
// data are in it: 0 if they are missing, 2 if they were added twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/slice.h"

namespace lockstep {

// A message that a rank mishandles.
struct ContributionMistake {
  int rank = 0, message = 1;  // the first message that the rank receives is 1
  bool is_twice = false;      // the message is added twice; otherwise dropped
};
// Reads "rank=1,message=2,kind=drop"; kinds are drop and twice. Throws Error (bad_input).
ContributionMistake parse_mistake(std::string_view text);

struct ContributionOptions {
  std::string operation = "all_reduce";  // or reduce_scatter, all_gather
  std::string algorithm = "ring";
  int ranks = 4;
  int elements = 0;  // of the whole buffer; 0: one for each rank
  double timeout_s = 30;
  std::optional<ContributionMistake> mistake = {};
};

// A rank's data after a message, or at the begin and the end.
struct HeldData {
  int from = -1;             // the message's sender; -1: no message
  int first = 0, count = 0;  // elements that it wrote; none if it went to scratch
  bool reduces = false;
  std::vector<std::int64_t> elements;
};

struct Contributions {
  ContributionOptions options;
  std::vector<std::vector<HeldData>> ranks;
};

// How often the data of `rank` are in an element.
inline int times_held(std::int64_t element, int rank) {
  constexpr int bits = 3, mask = 7;
  return static_cast<int>(element >> (bits * rank)) & mask;
}

// A contribution that a rank's result should contain once but does not, or contains but should not.
struct WrongContribution {
  int rank = 0, element = 0, source = 0;
  int times = 0, wanted = 0;
};

// Runs the collective, with ranks as threads. Throws Error (bad_input).
Contributions run_contributions(ContributionOptions options);
std::vector<WrongContribution> wrong_contributions(const Contributions& run);
std::string contributions_json(const Contributions& run);

}  // namespace lockstep
