#include "collectives/base/trace.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

// A device's track has the number of the host's track plus this.
constexpr int tracks_of_device = 100;

// Whether the device does it. Steps and messages belong to the host, which waits for their end.
bool is_work(std::string_view category) { return category != "step" && category != "message"; }

}  // namespace

void Trace::place_on(Device& device) {
  if (!device.enqueues()) return;
  device_ = &device;
  device.synchronize();
  known_ = device.record(true);
  device.synchronize();
  known_us_ = now_us();
}

DeviceEvent Trace::record_there() const { return device_ ? device_->record(true) : DeviceEvent(); }

Trace::Span::Span(Trace* trace, int track, std::string_view name, std::string_view category,
                  std::int64_t bytes)
    : trace_(trace), track_(track), category_(category), bytes_(bytes) {
  if (!trace_) return;
  name_ = name;
  begin_us_ = trace_->now_us();
  if (is_work(category_)) begin_there_ = trace_->record_there();
}

Trace::Span::~Span() {
  if (!trace_) return;
  DeviceEvent end_there;
  try {
    if (begin_there_.event()) end_there = trace_->record_there();
  } catch (...) {
    begin_there_ = {};  // a failed device has no times
  }
  trace_->add({.phase = 'X',
               .track = track_,
               .name = std::move(name_),
               .category = category_,
               .begin_us = begin_us_,
               .duration_us = trace_->now_us() - begin_us_,
               .bytes = bytes_,
               .values = {},
               .begin_there = begin_there_,
               .end_there = end_there});
}

void Trace::add(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

void Trace::name_track(int track, std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (std::ssize(track_names_) <= track) track_names_.resize(static_cast<std::size_t>(track) + 1);
  track_names_[static_cast<std::size_t>(track)] = name;
}

void Trace::flow_begin(int track, const std::string& id, Message message) {
  const std::int64_t bytes = message.bytes;
  add({'s', track, id, "message", now_us(), 0, bytes, {}, std::move(message)});
}

void Trace::flow_end(int track, const std::string& id) {
  add({'f', track, id, "message", now_us(), 0, -1, {}});
}

void Trace::memory(const Ledger& ledger) {
  Event event{'C', 0, "memory", "memory", now_us(), 0, -1, {}};
  for (int use = 0; use < memory_uses; ++use)
    event.values.push_back(ledger.bytes(static_cast<MemoryUse>(use)));
  add(std::move(event));
}

std::string Trace::events() const {
  using nlohmann::json;
  const std::lock_guard lock(mutex_);
  json all = json::array();
  all.push_back({{"ph", "M"},
                 {"name", "process_name"},
                 {"pid", rank_},
                 {"args", {{"name", "rank " + std::to_string(rank_)}}}});
  const auto describe_track = [&](std::size_t number, const std::string& name) {
    all.push_back({{"ph", "M"},
                   {"name", "thread_name"},
                   {"pid", rank_},
                   {"tid", number},
                   {"args", {{"name", name}}}});
  };
  for (std::size_t track = 0; track < track_names_.size(); ++track) {
    describe_track(track, track_names_[track]);
    if (device_)
      describe_track(track + tracks_of_device,
                     track_names_[track] + " (" + std::string(device_->name()) + ")");
  }
  for (const Event& event : events_) {
    json entry = {{"ph", std::string(1, event.phase)},
                  {"pid", rank_},
                  {"tid", event.track},
                  {"name", event.name},
                  {"cat", event.category},
                  {"ts", event.begin_us}};
    if (event.phase == 'X') entry["dur"] = event.duration_us;
    if (event.bytes >= 0) entry["args"]["bytes"] = event.bytes;
    if (event.phase == 's' || event.phase == 'f') {
      entry["name"] = "message";
      entry["id"] = event.name;
    }
    if (event.phase == 's') {
      entry["args"]["operation"] = event.message.operation;
      entry["args"]["operation_bytes"] = event.message.operation_bytes;
      entry["args"]["label"] = event.message.label;
      entry["args"]["address"] = event.message.address;
    }
    // Binds the arrow to the enclosing span instead of the next one.
    if (event.phase == 'f') entry["bp"] = "e";
    for (std::size_t use = 0; use < event.values.size(); ++use)
      entry["args"][std::string(name_of(static_cast<MemoryUse>(use)))] = event.values[use];
    if (event.begin_there.event()) {
      json there = entry;
      there["tid"] = event.track + tracks_of_device;
      there["ts"] = known_us_ + 1e6 * device_->seconds_between(known_, event.begin_there);
      there["dur"] = 1e6 * device_->seconds_between(event.begin_there, event.end_there);
      all.push_back(std::move(there));
      entry["cat"] = "host";
    }
    all.push_back(std::move(entry));
  }
  const std::string text = all.dump();
  return text.substr(1, text.size() - 2);
}

std::string trace_file(const std::vector<std::string>& events_by_rank) {
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  for (std::size_t i = 0; i < events_by_rank.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + events_by_rank[i];
  return text + "\n]}\n";
}

}  // namespace lockstep
