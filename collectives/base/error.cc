#include "collectives/base/error.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string format(ErrorKind kind, std::string_view message, const ErrorContext& c) {
  std::string text;
  if (c.rank >= 0) text += fmt::format("rank {} of {}", c.rank, c.size);
  if (!c.operation.empty()) text += fmt::format("{}{}", text.empty() ? "" : ", ", c.operation);
  if (c.sequence >= 0) text += fmt::format(" #{}", c.sequence);
  if (!text.empty()) text += ": ";
  if (kind != ErrorKind::bad_input) text += fmt::format("[{}] ", name_of(kind));
  text += message;
  if (!c.expected.empty() || !c.got.empty())
    text += fmt::format(" (expected {}, got {})", c.expected, c.got);
  if (!c.hint.empty()) text += fmt::format("; {}", c.hint);
  return text;
}

}  // namespace

std::string_view name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input:
      return "bad input";
    case ErrorKind::wrong_result:
      return "wrong result";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::lost_rank:
      return "lost rank";
    case ErrorKind::interrupted:
      return "interrupted";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, std::string_view message, ErrorContext context)
    : std::runtime_error(format(kind, message, context)),
      kind_(kind),
      context_(std::move(context)),
      message_(message) {}

int Error::exit_status() const {
  switch (kind_) {
    case ErrorKind::bad_input:
      return 2;
    case ErrorKind::wrong_result:
    case ErrorKind::mismatch:
      return 1;
    case ErrorKind::timeout:
    case ErrorKind::lost_rank:
      return 4;
    case ErrorKind::interrupted:
      return 130;  // as a shell reports a program that Ctrl-C has ended
  }
  return 1;
}

void require(bool condition, std::string_view message, std::string_view hint) {
  if (condition) return;
  ErrorContext context;
  context.hint = hint;
  throw Error(ErrorKind::bad_input, message, context);
}

}  // namespace lockstep
