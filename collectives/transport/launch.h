// Starts a world: the same program on every rank, as threads of this process or as the processes
// that mpirun started.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "collectives/base/counters.h"
#include "collectives/base/ledger.h"
#include "collectives/base/links.h"
#include "collectives/base/trace.h"
#include "collectives/communicator.h"
#include "collectives/transport/faulty.h"

namespace lockstep {

// What time is. `wall`: the machine's. The others are virtual (transport/virtual/): a rank's clock
// advances by what messages cost and, with `cpu`, by the processor time of its own computing.
enum class Clock { wall, cpu, unit };
Clock clock_from_name(std::string_view name);
std::string_view name_of(Clock clock);

struct LaunchOptions {
  int ranks = 1;          // of the threads transport; under mpirun its number of processes counts
  double timeout_s = 30;  // the deadline of every wait
  bool trace = false;
  std::optional<FaultPlan> fault;
  Clock clock = Clock::wall;
  const Tuning* tuning = nullptr;  // what `auto` chooses by; outlives the world
  LinkModel links = {};            // of virtual time; its nodes hold for threads, too
  // Where ranks keep their tensors; null: the host's memory. For a card, whichever it is: a card
  // for each rank, over NCCL, where there are so many or under mpirun; else this one for all of
  // them.
  Device* device = nullptr;
  // Where the ranks' last operations are written when the world fails; empty: nowhere. A process
  // that is one rank puts its number into the name.
  std::string flight;
  // Whose collectives `vendor` are where ranks are threads; empty: there are none.
  std::string vendor;
};

// What a rank's program gets. Lives as long as the program.
struct RankContext {
  Communicator& world;
  Counters& counters;
  Ledger& ledger;
  Trace* trace;  // null unless asked for
};

// Runs `program` on every rank and returns when all are done. Throws the error of the rank that
// failed first: every other rank was stopped and reported the same cause.
void launch(const LaunchOptions& options, const std::function<void(RankContext&)>& program);

// The number of ranks that launch() starts or joins.
int launch_ranks(const LaunchOptions& options);

// Whether a library can be LaunchOptions::vendor here.
bool can_be_vendor(std::string_view library);

}  // namespace lockstep
