#include "labs/grader/messages.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

std::string in_words(const SentMessage& message) {
  return fmt::format("{} bytes to rank {}", message.bytes, message.to);
}

bool is_equal(const SentMessage& a, const SentMessage& b, bool compares_data) {
  return a.to == b.to && a.bytes == b.bytes && !(compares_data && a.is_other_data(b));
}

}  // namespace

std::string first_difference(const SentMessages& own, const SentMessages& right,
                             bool compares_data) {
  for (std::size_t step = 0; step < std::max(own.size(), right.size()); ++step) {
    if (step >= own.size())
      return fmt::format(": step {} sends nothing, where {} bytes go to rank {}", step,
                         right[step].bytes, right[step].to);
    if (step >= right.size())
      return fmt::format(": step {} sends {} bytes to rank {}, where nothing is left to send", step,
                         own[step].bytes, own[step].to);
    if (is_equal(own[step], right[step], compares_data)) continue;
    if (own[step].is_other_data(right[step]))
      return fmt::format(
          ": step {} sends other data to rank {} than it should: another chunk, or not what it has "
          "become by then",
          step, own[step].to);
    return fmt::format(": step {} sends {} bytes to rank {}, where {} bytes go to rank {}", step,
                       own[step].bytes, own[step].to, right[step].bytes, right[step].to);
  }
  return "";
}

std::string times_too_many(std::int64_t bytes, const std::string& what, std::int64_t right) {
  const std::string times =
      right > 0
          ? fmt::format(", {:.1f} times", static_cast<double>(bytes) / static_cast<double>(right))
          : ", not";
  return fmt::format("{} bytes{} {}'s {}", bytes, times, what, right);
}

TraceRow traced_messages(int rank, const SentMessages& own, const SentMessages& right,
                         bool compares_data) {
  TraceRow row{.rank = fmt::format("rank {} sends", rank), .submission = {}, .reference = {}};
  for (const SentMessage& message : right) row.reference.push_back(in_words(message));
  for (std::size_t step = 0; step < own.size(); ++step) {
    const bool is_other =
        compares_data && step < right.size() && own[step].is_other_data(right[step]);
    row.submission.push_back(in_words(own[step]) + (is_other ? ", other data" : ""));
  }
  return row;
}

}  // namespace lockstep
