// The flight recorder: always keeps a rank's last operations, and writes them if the world fails.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// The operations of one rank on one communicator. Written by the thread that uses it.
class FlightLog {
 public:
  enum class Kind : std::uint8_t { collective, send, receive };
  struct Entry {
    double begin_s;
    Signature signature;
    std::int32_t peer;  // of a message; -1 for a collective
    Kind kind;
    bool ended;  // no end time: a second clock reading would double the recording cost
  };

  FlightLog(std::string group, std::size_t capacity)
      : group_(std::move(group)), capacity_(capacity) {}

  void add(const Entry& entry) {
    if (entries_.size() < capacity_)
      entries_.push_back(entry);
    else
      entries_[next_ % capacity_] = entry;
    ++next_;
  }
  // Marks the newest entry as ended.
  void end() { entries_[(next_ - 1) % capacity_].ended = true; }

  const std::string& group() const { return group_; }
  // From oldest to newest.
  std::vector<Entry> entries() const;

 private:
  std::string group_;
  std::size_t capacity_;
  std::size_t next_ = 0;
  std::vector<Entry> entries_;
};

// The logs of all communicators of one rank. Thread-safe, but read them only when the rank has
// stopped.
class FlightRecorder {
 public:
  static constexpr std::size_t kept_operations = 4096;

  explicit FlightRecorder(int rank, std::size_t capacity = kept_operations)
      : rank_(rank), capacity_(capacity) {}

  int rank() const { return rank_; }
  // A new log for a communicator of that name. Repeated names get a number.
  std::shared_ptr<FlightLog> log(const std::string& group);

  // "after all_reduce/ring #6 of 1000 f32, sum": the newest one; "" before the first.
  std::string last_operation() const;

  // Chrome trace events as objects separated by commas: a track per communicator, with an instant
  // event where an operation began, and a span for an operation that has not ended.
  std::string events() const;

 private:
  int rank_;
  std::size_t capacity_;
  mutable std::mutex mutex_;
  std::map<std::string, int> logs_of_name_;
  std::vector<std::shared_ptr<FlightLog>> logs_;
};

// Records the operations on `inner` in logs of `recorder`.
std::unique_ptr<Transport> recording(std::unique_ptr<Transport> inner, FlightRecorder& recorder);

// The file for a failed world, which Perfetto opens: its error with the failure report, and the
// last operations of the recorded ranks.
std::string flight_file(const Error& error, const std::vector<const FlightRecorder*>& recorders);

}  // namespace lockstep
