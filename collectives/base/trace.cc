#include "collectives/base/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

// A device's track has the number of the host's track plus this.
constexpr int tracks_of_device = 100;

// Whether the device does the work. Steps and messages belong to the host, which waits for their
// end.
bool is_work(std::string_view category) { return category != "step" && category != "message"; }

// Returns a text as a JSON string.
std::string json_string(std::string_view text) {
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  return std::ranges::all_of(text, is_plain) ? fmt::format("\"{}\"", text)
                                             : json_line(nlohmann::json(text));
}

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

void Trace::name_unnamed(int track, std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (std::ssize(track_names_) <= track) track_names_.resize(static_cast<std::size_t>(track) + 1);
  std::string& known = track_names_[static_cast<std::size_t>(track)];
  if (known.empty()) known = name;
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

// Written piece by piece: held as values of a JSON library, the events of many ranks would not fit
// in memory.
std::string Trace::events() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto out = std::back_inserter(text);
  const auto describe = [&](std::string_view what, std::size_t track, std::string_view name) {
    fmt::format_to(out, R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}},)", what,
                   rank_, track, json_string(name));
  };
  describe("process_name", 0, fmt::format("rank {}", rank_));
  std::vector<bool> is_used(track_names_.size());
  for (const Event& event : events_)
    if (event.track < std::ssize(is_used)) is_used[static_cast<std::size_t>(event.track)] = true;
  for (std::size_t track = 0; track < track_names_.size(); ++track) {
    if (!is_used[track]) continue;
    describe("thread_name", track, track_names_[track]);
    if (device_)
      describe("thread_name", track + tracks_of_device,
               fmt::format("{} ({})", track_names_[track], device_->name()));
  }
  const auto write = [&](const Event& event, int track, std::string_view category, double begin_us,
                         double duration_us) {
    const bool is_flow = event.phase == 's' || event.phase == 'f';
    fmt::format_to(out, R"({{"ph":"{}","pid":{},"tid":{},"name":{},"cat":"{}","ts":{})",
                   event.phase, rank_, track, json_string(is_flow ? "message" : event.name),
                   category, begin_us);
    if (event.phase == 'X') fmt::format_to(out, R"(,"dur":{})", duration_us);
    if (is_flow) fmt::format_to(out, R"(,"id":{})", json_string(event.name));
    // Binds the arrow to the enclosing span instead of the next one.
    if (event.phase == 'f') text += R"(,"bp":"e")";
    std::string arguments;
    if (event.bytes >= 0) arguments += fmt::format(R"("bytes":{},)", event.bytes);
    if (event.phase == 's')
      arguments += fmt::format(R"("operation":{},"operation_bytes":{},"label":{},"address":{},)",
                               json_string(event.message.operation), event.message.operation_bytes,
                               json_string(event.message.label), event.message.address);
    for (std::size_t use = 0; use < event.values.size(); ++use)
      arguments +=
          fmt::format(R"("{}":{},)", name_of(static_cast<MemoryUse>(use)), event.values[use]);
    if (!arguments.empty()) {
      arguments.back() = '}';
      text += R"(,"args":{)" + arguments;
    }
    text += "},";
  };
  for (const Event& event : events_) {
    const bool is_there = event.begin_there.event() != nullptr;
    if (is_there)
      write(event, event.track + tracks_of_device, event.category,
            known_us_ + 1e6 * device_->seconds_between(known_, event.begin_there),
            1e6 * device_->seconds_between(event.begin_there, event.end_there));
    write(event, event.track, is_there ? "host" : event.category, event.begin_us,
          event.duration_us);
  }
  text.pop_back();
  return text;
}

std::string trace_file(const std::vector<std::string>& events_by_rank) {
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  for (std::size_t i = 0; i < events_by_rank.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + events_by_rank[i];
  return text + "\n]}\n";
}

}  // namespace lockstep
