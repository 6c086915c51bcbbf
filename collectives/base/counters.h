// Bytes and messages that one rank sent and received, by label.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

struct Volume {
  std::int64_t sent_bytes = 0, received_bytes = 0;
  std::int64_t sent_messages = 0, received_messages = 0;

  Volume& operator+=(const Volume& other);
  bool operator==(const Volume&) const = default;
};

// Thread-safe: the threads of a rank share one.
class Counters {
 public:
  void add_sent(std::string_view label, std::int64_t bytes);
  void add_received(std::string_view label, std::int64_t bytes);
  // Since the last reset.
  std::map<std::string, Volume, std::less<>> by_label() const;
  Volume total() const;
  void reset();
  // Until it is called with false, nothing is counted.
  void pause(bool paused);

 private:
  // Adds a message under a label.
  void add(std::string_view label, const Volume& message);

  mutable std::mutex mutex_;
  bool is_paused_ = false;
  // Most messages have the label of the one before them, and need no search for it.
  std::string newest_label_;
  Volume newest_;
  std::map<std::string, Volume, std::less<>> volumes_;  // without the newest
};

}  // namespace lockstep
