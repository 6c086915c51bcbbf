// The one error type. Its fields say what happened (tests compare them); one function formats them.
#pragma once

#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

enum class ErrorKind : std::uint8_t {
  bad_input,     // an unusable flag, file or argument
  wrong_result,  // a result failed its check
  mismatch,      // ranks call different operations
  timeout,       // a wait passed its deadline
  lost_rank,     // a rank threw, died or left while others needed it
  interrupted,   // the user stopped the program
};

std::string_view name_of(ErrorKind kind);

// Where an error happened and what was expected; fields that do not apply keep their defaults.
struct ErrorContext {
  int rank = -1;               // the rank that reports
  int size = 0;                // ranks in its communicator
  int failed_rank = -1;        // the rank that caused it, if known
  int peer = -1;               // the other rank of a wait or message
  std::int64_t sequence = -1;  // number of the operation on this communicator, from 0
  std::string operation;       // "all_reduce/ring over threads"
  std::string expected;
  std::string got;
  std::string hint;  // what to do about it
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view message, ErrorContext context = {});

  ErrorKind kind() const { return kind_; }
  const ErrorContext& context() const { return context_; }
  // The message without rank, operation and hint.
  const std::string& message() const { return message_; }
  // The process's exit status for this error: 1 wrong result or mismatch, 2 bad input, 4 timeout or
  // lost rank, 130 interrupted.
  int exit_status() const;

 private:
  ErrorKind kind_;
  ErrorContext context_;
  std::string message_;
};

// Throws Error (bad_input) with `message` unless `condition` holds. For the caller's mistakes;
// always checked.
void require(bool condition, std::string_view message, std::string_view hint = "");
// The same, but builds the message only on failure: building one takes longer than a short
// collective.
template <std::invocable Message>
void require(bool condition, Message message, std::string_view hint = "") {
  if (!condition) require(false, message(), hint);
}

}  // namespace lockstep
