// The messages that a rank of a submission sends, next to those of our solution.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "labs/grader/judge.h"
#include "labs/grader/ranks.h"

namespace lockstep {

using SentMessages = std::vector<SentMessage>;

// Describes the data that a message holds; empty if they are unknown.
using Content = std::function<std::string(const SentMessage&)>;

// Returns where they first differ: ": step 0 ..."; empty if they do not. Without `compares_data`
// only receivers, sizes and labels count, for data that can be rounded differently.
std::string first_difference(const SentMessages& own, const SentMessages& right, bool compares_data,
                             const Content& content = {});

// How many messages differ, or are too many or too few.
std::int64_t different_messages(const SentMessages& a, const SentMessages& b, bool compares_data);

// "1 rank", "2 ranks".
std::string counted(std::int64_t number, std::string_view what);

// "512 bytes, 2.0 times the closed form's 256". `what`: "the closed form".
std::string times_too_many(std::int64_t bytes, const std::string& what, std::int64_t right);

// Returns the row for the page of a grade.
TraceRow traced_messages(int rank, const SentMessages& own, const SentMessages& right,
                         bool compares_data);

}  // namespace lockstep
