#include "collectives/base/counters.h"

namespace lockstep {

Volume& Volume::operator+=(const Volume& other) {
  sent_bytes += other.sent_bytes;
  received_bytes += other.received_bytes;
  sent_messages += other.sent_messages;
  received_messages += other.received_messages;
  return *this;
}

void Counters::add(std::string_view label, const Volume& message) {
  const std::lock_guard lock(mutex_);
  if (is_paused_) return;
  if (label != newest_label_) {
    if (newest_ != Volume{}) volumes_[newest_label_] += newest_;
    newest_label_ = label;
    newest_ = {};
  }
  newest_ += message;
}

void Counters::add_sent(std::string_view label, std::int64_t bytes) {
  add(label, {.sent_bytes = bytes, .sent_messages = 1});
}

void Counters::add_received(std::string_view label, std::int64_t bytes) {
  add(label, {.received_bytes = bytes, .received_messages = 1});
}

std::map<std::string, Volume, std::less<>> Counters::by_label() const {
  const std::lock_guard lock(mutex_);
  auto volumes = volumes_;
  if (newest_ != Volume{}) volumes[newest_label_] += newest_;
  return volumes;
}

Volume Counters::total() const {
  const std::lock_guard lock(mutex_);
  Volume sum = newest_;
  for (const auto& [label, volume] : volumes_) sum += volume;
  return sum;
}

void Counters::reset() {
  const std::lock_guard lock(mutex_);
  volumes_.clear();
  newest_ = {};
}

void Counters::pause(bool paused) {
  const std::lock_guard lock(mutex_);
  is_paused_ = paused;
}

}  // namespace lockstep
