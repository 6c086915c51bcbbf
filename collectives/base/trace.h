// What one rank did and when, for Perfetto (https://ui.perfetto.dev) or chrome://tracing.
//
// A rank is a process in the picture, a track (its compute, a stream) a line. Spans on a track
// nest; arrows lead from a send to its receive; counters draw memory over time. Where the rank's
// device enqueues, a span is when the host enqueued, of the category `host`, and a track beside it
// tells when the device did it.
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

// Thread-safe. Times are those of the ranks' clock, so that ranks on one host line up.
class Trace {
 public:
  // `now_seconds` reads the clock; it must outlive nothing that is not traced any more.
  Trace(int rank, std::function<double()> now_seconds)
      : rank_(rank), now_seconds_(std::move(now_seconds)) {}

  // Where the rank computes; called on its thread before the first span.
  void place_on(Device& device);

  // A span from its construction to its destruction. With no trace it does nothing.
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
    Mark begin_there_;
  };

  void name_track(int track, std::string_view name);
  // Arrow from the span that is open on `track` here to the one open where it ends. `id` is the
  // same on both sides.
  void flow_begin(int track, const std::string& id, std::int64_t bytes);
  void flow_end(int track, const std::string& id);
  // What the ledger holds now, by use.
  void memory(const Ledger& ledger);

  // The events as JSON objects separated by commas.
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
    Mark begin_there{}, end_there{};  // on a device that enqueues
  };
  void add(Event event);
  double now_us() const { return now_seconds_() * 1e6; }
  // The calling thread's, where there is a device that enqueues.
  Mark mark_there() const;

  int rank_;
  std::function<double()> now_seconds_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<std::string> track_names_;
  Device* device_ = nullptr;  // one that enqueues
  Mark known_;                // a moment there,
  double known_us_ = 0;       // and when it was
};

// A whole trace file of the events of all ranks.
std::string trace_file(const std::vector<std::string>& events_by_rank);

}  // namespace lockstep
