#include "collectives/algorithm.h"

#include "collectives/tuning.h"

namespace lockstep {

std::string_view tuned_name(Operation operation, const Communicator& comm, Slice data) {
  const Tuning* const tuning = comm.records().tuning;
  return tuning ? tuning->find(operation, comm, data.bytes()) : std::string_view();
}

std::string unmet(Need need, Communicator& comm) {
  switch (need) {
    case Need::nothing:
      return "";
    case Need::power_of_two_ranks:
      if (std::has_single_bit(static_cast<unsigned>(comm.size()))) return "";
      return fmt::format("a power of two of ranks, there are {}", comm.size());
    case Need::full_nodes:
      if (comm.ranks_per_node() > 0) return "";
      return "the same number of consecutive ranks on every node";
    case Need::shared_memory:
      if (comm.transport().shared_memory()) return "";
      return "ranks that share memory (threads, or processes of one host)";
    case Need::vendor:
      if (comm.transport().vendor()) return "";
      return "a transport with its own collectives (start the program under mpirun)";
  }
  return "";
}

}  // namespace lockstep
