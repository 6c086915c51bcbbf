// Starts a world: the same program on every rank. Ranks are threads of this process, or the
// processes that mpirun started.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/counters.h"
#include "collectives/base/ledger.h"
#include "collectives/base/link_slowdown.h"
#include "collectives/base/links.h"
#include "collectives/base/trace.h"
#include "collectives/communicator.h"
#include "collectives/transport/decorators/disturbed.h"
#include "collectives/transport/decorators/faulty.h"
#include "collectives/transport/decorators/watched.h"
#include "collectives/transport/failure/claims.h"

namespace lockstep {

// Which time is measured. `wall`: real time. The others are virtual (transport/virtual/): a rank's
// clock advances by the cost of messages and, with `cpu`, by the CPU time of its own computing.
enum class Clock { wall, cpu, unit };
Clock clock_from_name(std::string_view name);
std::string_view name_of(Clock clock);

struct LaunchOptions {
  int ranks = 1;          // for the threads transport; mpirun sets it otherwise
  double timeout_s = 30;  // for every wait
  bool trace = false;
  std::optional<FaultPlan> fault;
  Clock clock = Clock::wall;
  const Tuning* tuning = nullptr;             // how `auto` chooses; must outlive the world
  LinkModel links = {};                       // for virtual time; threads also use its nodes
  std::vector<LinkSlowdown> slow_links = {};  // for virtual time
  // Where ranks keep their tensors; null: the host's memory. If it is a GPU: under mpirun, and if
  // there are enough GPUs, each rank gets its own, over NCCL. Otherwise all ranks share this one.
  Device* device = nullptr;
  // What this process is about to do. If ranks are processes, launch() refuses ranks with different
  // claims, or with a different build of the program.
  Claims claims = {};
  // The file for the ranks' last operations if the world fails; empty: none. If ranks are
  // processes, each appends its number to the name.
  std::string flight;
  // The same for the ranks' traces, up to the failure.
  std::string failed_trace = {};
  // The library whose collectives are the algorithm `vendor` if ranks are threads; empty: none.
  std::string vendor;
  // For tests: random delays of messages. See disturbed.h.
  std::optional<Disturbance> disturbance = {};
  // Watches every message that a rank receives; null: no watch. Must outlive the world.
  ArrivalWatch* watch = nullptr;
};

// What the program of a rank can use, until it returns.
struct RankContext {
  Communicator& world;
  Counters& counters;
  Ledger& ledger;
  Trace* trace;  // null unless asked for
};

// Runs `program` on every rank and returns when all are done. Throws the error of the rank that
// failed first; the other ranks are stopped and report the same cause.
void launch(const LaunchOptions& options, const std::function<void(RankContext&)>& program);

// Runs `program` on one rank of a world of options.ranks ranks, without the others: its messages
// vanish, and it receives zeros at once. Its counters and its ledger show what it would send,
// receive and hold.
void launch_alone(const LaunchOptions& options, int rank,
                  const std::function<void(RankContext&)>& program);

// Throws Error (bad_input) unless launch() takes these options.
void check(const LaunchOptions& options);

// The number of ranks that launch() starts or joins.
int launch_ranks(const LaunchOptions& options);
// How they exchange messages in real time: "threads"; or "openmpi" or "mpich" between processes.
std::string launch_transport();
// Throws Error (bad_input) if a launcher such as mpirun has started a different number of processes
// from the one that `flag` ("--ranks 4") asks for.
void require_processes(int asked, std::string_view flag);
// Call before launch() if this process, one of several that a launcher started, cannot continue
// because of its input. Tells the others, which would wait for it, and returns whether they have
// reported `why`.
bool refuse_world(std::string_view why);

// Whether a library can be LaunchOptions::vendor in this build.
bool can_be_vendor(std::string_view library);

}  // namespace lockstep
