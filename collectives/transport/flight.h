// The flight recorder: a rank's last operations, always kept, written when the world fails.
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

// What a rank did on one communicator. Written by the thread that uses the communicator.
class FlightLog {
 public:
  enum class Kind : std::uint8_t { collective, send, receive };
  struct Entry {
    double begin_s;
    Signature signature;
    std::int32_t peer;  // of a message; else -1
    Kind kind;
    bool ended;  // when, is not kept: one more look at the clock would cost as much as all this
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
  // Ends the entry added last.
  void end() { entries_[(next_ - 1) % capacity_].ended = true; }

  const std::string& group() const { return group_; }
  // From the oldest to the newest.
  std::vector<Entry> entries() const;

 private:
  std::string group_;
  std::size_t capacity_;
  std::size_t next_ = 0;
  std::vector<Entry> entries_;
};

// The logs of all communicators of one rank. Thread-safe; what reads them is for when the rank is
// still.
class FlightRecorder {
 public:
  static constexpr std::size_t kept_operations = 4096;

  explicit FlightRecorder(int rank, std::size_t capacity = kept_operations)
      : rank_(rank), capacity_(capacity) {}

  int rank() const { return rank_; }
  // A log for one more communicator of that name; names given before get a number.
  std::shared_ptr<FlightLog> log(const std::string& group);

  // Chrome trace events, as objects separated by commas: a track for each communicator, on it
  // the moment at which each operation began, and a span for one that has not ended.
  std::string events() const;

 private:
  int rank_;
  std::size_t capacity_;
  mutable std::mutex mutex_;
  std::map<std::string, int> logs_of_name_;
  std::vector<std::shared_ptr<FlightLog>> logs_;
};

// Keeps what passes through `inner` in logs of `recorder`.
std::unique_ptr<Transport> recording(std::unique_ptr<Transport> inner, FlightRecorder& recorder);

// The file of a failed world, which Perfetto opens: its error, which says who did what when it was
// found, and the last operations of the ranks that were recorded here.
std::string flight_file(const Error& error, const std::vector<const FlightRecorder*>& recorders);

}  // namespace lockstep
