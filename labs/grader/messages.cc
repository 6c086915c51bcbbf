#include "labs/grader/messages.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

std::string in_words(const SentMessage& message) {
  return fmt::format("{} to rank {}", counted(message.bytes, "byte"), message.to);
}

bool is_equal(const SentMessage& a, const SentMessage& b, bool compares_data) {
  return a.to == b.to && a.bytes == b.bytes && a.label == b.label &&
         !(compares_data && a.is_other_data(b));
}

std::string step_in_words(std::size_t step, const SentMessage* own, const SentMessage* right,
                          const Content& content) {
  if (!own)
    return fmt::format(": step {} sends nothing, where {} to rank {}", step,
                       counted(right->bytes, "byte") + (right->bytes == 1 ? " goes" : " go"),
                       right->to);
  if (!right)
    return fmt::format(": step {} sends {}, where nothing is left to send", step, in_words(*own));
  if (own->to != right->to || own->bytes != right->bytes)
    return fmt::format(": step {} sends {}, where {} belong", step, in_words(*own),
                       in_words(*right));
  if (own->label != right->label)
    return fmt::format(": step {} has the label '{}', where '{}' belongs", step, own->label,
                       right->label);
  const std::string held = content ? content(*own) : "", wanted = content ? content(*right) : "";
  if (wanted.empty())
    return fmt::format(": step {} sends other data to rank {} than it should", step, own->to);
  return fmt::format(": step {} sends {} to rank {}, where {} belongs", step,
                     held.empty() ? "data that are no chunk of any ranks" : held, own->to, wanted);
}

}  // namespace

std::string counted(std::int64_t number, std::string_view what) {
  const std::string_view ending = number == 1 ? "" : what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", number, what, ending);
}

std::string first_difference(const SentMessages& own, const SentMessages& right, bool compares_data,
                             const Content& content) {
  for (std::size_t step = 0; step < std::max(own.size(), right.size()); ++step)
    if (step >= own.size() || step >= right.size() ||
        !is_equal(own[step], right[step], compares_data))
      return step_in_words(step, step < own.size() ? &own[step] : nullptr,
                           step < right.size() ? &right[step] : nullptr, content);
  return "";
}

std::int64_t different_messages(const SentMessages& a, const SentMessages& b, bool compares_data) {
  std::int64_t sum = 0;
  for (std::size_t step = 0; step < std::max(a.size(), b.size()); ++step)
    sum += step >= a.size() || step >= b.size() || !is_equal(a[step], b[step], compares_data);
  return sum;
}

std::string times_too_many(std::int64_t bytes, const std::string& what, std::int64_t right) {
  const std::string times =
      right > 0
          ? fmt::format(", {:.1f} times", static_cast<double>(bytes) / static_cast<double>(right))
          : ", not";
  return fmt::format("{}{} {}'s {}", counted(bytes, "byte"), times, what, right);
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
