// What one rank did and when, for Perfetto (https://ui.perfetto.dev) or chrome://tracing.
//
// A rank is drawn as a process; its compute and each of its streams as a track. Spans on a track
// nest; arrows lead from a send to its receive and name the operation of the message; counters show
// memory over time. If the rank's device enqueues, a span of category `host` shows when the host
// enqueued, and a second track shows when the device executed.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/ledger.h"

namespace lockstep {

// Thread-safe. Times are those of the ranks' clock, so traces of ranks on one host align.
class Trace {
 public:
  // `now_seconds` reads the clock. It is called only while something is traced.
  Trace(int rank, std::function<double()> now_seconds)
      : rank_(rank), now_seconds_(std::move(now_seconds)) {}

  // The rank's device. Call on its thread, before the first span.
  void place_on(Device& device);

  // A span from construction to destruction. Does nothing without a trace.
  class Span {
   public:
    Span(Trace* trace, int track, std::string_view name, std::string_view category,
         std::int64_t bytes = -1);
    ~Span();
    Span(const Span&) = delete;

   private:
    Trace* trace_;
    int track_;
    std::string name_;
    std::string_view category_;
    std::int64_t bytes_;
    double begin_us_ = 0;
    DeviceEvent begin_there_;
  };

  // A message, described by its sender.
  struct Message {
    std::int64_t bytes;
    std::string operation;         // "all_reduce/ring"; "send_recv" between collectives
    std::int64_t operation_bytes;  // of the collective's whole buffer
    std::string label;             // under which the sender counts it
    std::uintptr_t address;        // of its data: shows which part of a buffer it is
  };

  void name_track(int track, std::string_view name);
  // The same, unless the track has a name.
  void name_unnamed(int track, std::string_view name);
  // An arrow from the span now open on `track` to the one open at flow_end() with the same `id`.
  void flow_begin(int track, const std::string& id, Message message);
  void flow_end(int track, const std::string& id);
  // Records the ledger's current bytes by use.
  void memory(const Ledger& ledger);

  // All events as JSON objects separated by commas.
  std::string events() const;

 private:
  struct Event {
    char phase;
    int track;
    std::string name;
    std::string_view category;
    double begin_us;
    double duration_us;
    std::int64_t bytes;
    std::vector<std::int64_t> values;
    Message message{};                       // of a flow's begin
    DeviceEvent begin_there{}, end_there{};  // on a device that enqueues
  };
  void add(Event event);
  double now_us() const { return now_seconds_() * 1e6; }
  // Records an event of the calling thread if the device enqueues.
  DeviceEvent record_there() const;

  int rank_;
  std::function<double()> now_seconds_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<std::string> track_names_;
  Device* device_ = nullptr;  // one that enqueues
  DeviceEvent known_;         // an event there,
  double known_us_ = 0;       // and its time on the host's clock
};

// A trace file with the events of all ranks.
std::string trace_file(const std::vector<std::string>& events_by_rank);

}  // namespace lockstep
