#include "collectives/transport/launch/launch_rank.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/out_of_memory.h"
#include "collectives/transport/decorators/counting.h"
#include "collectives/transport/decorators/tracing.h"

namespace lockstep {
namespace {

// Runs one rank. If there are several ranks, adds the rank to the error that it throws.
void run_named(RankContext& context, const FlightRecorder& recorder,
               const std::function<void(RankContext&)>& program) {
  try {
    program(context);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc& error) {
    const int rank = context.world.rank();
    if (context.world.size() == 1) throw;
    const bool says_what = dynamic_cast<const OutOfMemory*>(&error) != nullptr;
    throw Error(ErrorKind::bad_input, says_what ? error.what() : "out of memory",
                {.rank = rank,
                 .size = context.world.size(),
                 .failed_rank = rank,
                 .operation = recorder.last_operation(),
                 .hint = "use a smaller model, batch or sequence length, or raise the limit of "
                         "this rank's memory"});
  } catch (const std::exception& error) {
    const int rank = context.world.rank();
    if (context.world.size() == 1) throw;
    // The operating system refused something, such as output to a full disk.
    if (dynamic_cast<const std::system_error*>(&error))
      throw Error(ErrorKind::bad_input, error.what(),
                  {.rank = rank, .size = context.world.size(), .failed_rank = rank});
    throw Error(ErrorKind::lost_rank, error.what(),
                {.rank = rank, .size = context.world.size(), .failed_rank = rank});
  }
}

// Writes a file about a failed world; returns a text that names the file.
std::string written(const std::string& path, std::string_view what, std::string_view verb,
                    const std::function<std::string()>& text) {
  try {
    if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
      std::filesystem::create_directories(folder);
    write_file(path, text());
    return fmt::format("{} {} in {}", what, verb, path);
  } catch (const std::exception& unwritten) {
    return fmt::format("{} could not be written: {}", what, unwritten.what());
  }
}

}  // namespace

void run_rank(const LaunchOptions& options, Device* device, std::unique_ptr<Transport> transport,
              bool processes, RankHistory& history,
              const std::function<void(RankContext&)>& program) {
  Counters counters;
  Ledger ledger;
  if (device) ledger.place_on(*device);
  std::optional<Trace>& trace = history.trace;
  if (options.trace) {
    trace.emplace(transport->rank(), [end = transport.get()] { return end->now_seconds(); });
    if (device) trace->place_on(*device);
    trace->name_track(0, "compute");
  }
  transport = recording(std::move(transport), history.operations);
  if (options.disturbance) transport = disturbed(std::move(transport), *options.disturbance);
  const auto struck = std::make_shared<FaultRecord>();
  if (options.fault) transport = faulty(std::move(transport), *options.fault, processes, struck);
  if (options.watch) transport = watched(std::move(transport), *options.watch);
  transport = counting(std::move(transport), counters);
  if (trace) transport = tracing(std::move(transport), *trace);

  Trace* const records = trace ? &*trace : nullptr;
  Communicator world(std::move(transport),
                     {.ledger = &ledger, .trace = records, .tuning = options.tuning});
  RankContext context{world, counters, ledger, records};
  run_named(context, history.operations, program);
  if (options.fault) require_struck(*options.fault, *struck, world.rank());
}

void fail_world(const std::exception_ptr& failure, const LaunchOptions& options,
                const std::deque<RankHistory>& ranks) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bad_input) throw;
    ErrorContext context = error.context();
    const auto write = [&](const std::string& path, auto... words) {
      if (path.empty()) return;
      if (!context.hint.empty()) context.hint += "; ";
      context.hint += written(path, words...);
    };
    write(options.flight, "the ranks' last operations", "are", [&] {
      std::vector<const FlightRecorder*> recorders;
      for (const RankHistory& rank : ranks) recorders.push_back(&rank.operations);
      return flight_file(error, recorders);
    });
    write(options.trace ? options.failed_trace : "", "the trace", "is", [&] {
      std::vector<std::string> events;
      for (const RankHistory& rank : ranks)
        if (rank.trace) events.push_back(rank.trace->events());
      return trace_file(events);
    });
    throw Error(error.kind(), error.message(), context);
  }
}

bool is_first_interrupted(const std::exception& error, const std::exception_ptr& before) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return !before && known && known->kind() == ErrorKind::interrupted;
}

}  // namespace lockstep
