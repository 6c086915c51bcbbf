#include "collectives/transport/decorators/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/base/json_text.h"
#include "collectives/base/trace.h"
#include "collectives/transport/decorators/decorator.h"
#include "collectives/transport/failure/failure_report.h"

namespace lockstep {
namespace {

class RecordingTransport final : public TransportDecorator, public OperationBoard {
 public:
  RecordingTransport(std::unique_ptr<Transport> inner, FlightRecorder& recorder, std::string group,
                     int ends_per_rank = 1)
      : TransportDecorator(std::move(inner)),
        recorder_(recorder),
        group_(std::move(group)),
        ranks_(size() / ends_per_rank),
        log_(recorder.log(group_)) {
    capabilities_.operations = this;
  }

  void enter(const Call& call) override {
    log_->add({.begin_s = about_now_seconds(),
               .signature = call.signature,
               .peer = -1,
               .kind = FlightLog::Kind::collective,
               .ended = false});
    inner_->enter(call);
  }
  void leave() override {
    log_->end();
    inner_->leave();
  }
  Request isend(const Call& call, Slice data, int to) override {
    note(FlightLog::Kind::send, call, to);
    return inner_->isend(call, data, to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    note(FlightLog::Kind::receive, call, from);
    return inner_->irecv(call, data, from);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    note(FlightLog::Kind::receive, call, from);
    return inner_->irecv_reduce(call, growing, from, op);
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    note(FlightLog::Kind::send, call, to);
    note(FlightLog::Kind::receive, call, from);
    inner_->send_recv(call, leaving, to, arriving, from);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    note(FlightLog::Kind::send, call, to);
    note(FlightLog::Kind::receive, call, from);
    inner_->send_recv_reduce(call, leaving, to, growing, from, op);
  }
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    const std::string name =
        std::ssize(members) == size() ? group_ : fmt::format("{} {}", group_, ranks_text(members));
    return std::make_unique<RecordingTransport>(inner_->subgroup(members), recorder_, name);
  }
  TwoEnds two_ends() override {
    TwoEnds ends = inner_->two_ends();
    for (std::size_t i = 0; i < ends.size(); ++i)
      ends[i] = std::make_unique<RecordingTransport>(
          std::move(ends[i]), recorder_, fmt::format("{}, end {} of 2", group_, i + 1), 2);
    return ends;
  }

 private:
  // Messages inside a collective are not recorded.
  void note(FlightLog::Kind kind, const Call& call, int peer) {
    if (call.signature.sequence >= 0) return;
    log_->add({.begin_s = about_now_seconds(),
               .signature = call.signature,
               .peer = peer % ranks_,
               .kind = kind,
               .ended = true});
  }

  FlightRecorder& recorder_;
  std::string group_;
  int ranks_;
  std::shared_ptr<FlightLog> log_;
};

nlohmann::json event(int rank, std::size_t track, const FlightLog::Entry& entry) {
  const Signature& s = entry.signature;
  std::string name(name_of(s.operation));
  if (s.algorithm[0] != 0) name += fmt::format("/{}", s.algorithm.data());
  if (entry.kind == FlightLog::Kind::send) name = fmt::format("send to {}", entry.peer);
  if (entry.kind == FlightLog::Kind::receive) name = fmt::format("receive from {}", entry.peer);
  nlohmann::json args = {{"count", s.count}, {"dtype", name_of(s.dtype)}};
  if (entry.kind == FlightLog::Kind::collective) {
    args["sequence"] = s.sequence;
    args["reduction"] = name_of(s.op);
    if (s.root >= 0) args["root"] = s.root;
  }
  return {{"ph", entry.ended ? "i" : "B"},
          {"s", "t"},
          {"pid", rank},
          {"tid", track},
          {"name", name},
          {"cat", "communication"},
          {"ts", entry.begin_s * 1e6},
          {"args", std::move(args)}};
}

}  // namespace

std::vector<FlightLog::Entry> FlightLog::entries() const {
  std::vector<Entry> all;
  const std::size_t kept = entries_.size();
  for (std::size_t i = 0; i < kept; ++i) all.push_back(entries_[(next_ + i) % kept]);
  return all;
}

std::shared_ptr<FlightLog> FlightRecorder::log(const std::string& group) {
  const std::lock_guard lock(mutex_);
  // Keeps a few logs of communicators that no longer exist.
  constexpr std::ptrdiff_t kept_logs = 16;
  const auto gone = [](const auto& log) { return log.use_count() == 1; };
  if (std::ranges::count_if(logs_, gone) > kept_logs)
    logs_.erase(std::ranges::find_if(logs_, gone));
  const int number = ++logs_of_name_[group];
  return logs_.emplace_back(std::make_shared<FlightLog>(
      number == 1 ? group : fmt::format("{} ({})", group, number), capacity_));
}

std::string FlightRecorder::last_operation() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  double newest_s = 0;
  for (const auto& log : logs_) {
    const std::vector<FlightLog::Entry> entries = log->entries();
    if (entries.empty() || (!text.empty() && entries.back().begin_s < newest_s)) continue;
    newest_s = entries.back().begin_s;
    text = fmt::format("{} {}", entries.back().ended ? "after" : "in",
                       entries.back().signature.text());
  }
  return text;
}

std::string FlightRecorder::events() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json all = nlohmann::json::array();
  const auto name = [&](const char* kind, std::size_t track, const std::string& text) {
    all.push_back(
        {{"ph", "M"}, {"name", kind}, {"pid", rank_}, {"tid", track}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, fmt::format("rank {}", rank_));
  for (std::size_t track = 0; track < logs_.size(); ++track) {
    name("thread_name", track, logs_[track]->group());
    for (const FlightLog::Entry& entry : logs_[track]->entries())
      all.push_back(event(rank_, track, entry));
  }
  const std::string text = json_line(all);
  return text.substr(1, text.size() - 2);
}

std::unique_ptr<Transport> recording(std::unique_ptr<Transport> inner, FlightRecorder& recorder) {
  return std::make_unique<RecordingTransport>(std::move(inner), recorder, "world");
}

std::string flight_file(const Error& error, const std::vector<const FlightRecorder*>& recorders) {
  std::vector<std::string> events;
  for (const FlightRecorder* recorder : recorders) events.push_back(recorder->events());
  const ErrorContext& context = error.context();
  const nlohmann::json head = {{"schema", "lockstep.flight/1"},
                               {"error",
                                {{"kind", name_of(error.kind())},
                                 {"rank", context.rank},
                                 {"failed_rank", context.failed_rank},
                                 {"operation", context.operation},
                                 {"sequence", context.sequence},
                                 {"verdict", error.what()}}}};
  const std::string text = json_line(head);
  return text.substr(0, text.size() - 1) + "," + trace_file(events).substr(1);
}

}  // namespace lockstep
