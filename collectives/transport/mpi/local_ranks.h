// The processes of this job on this host, before MPI knows them.
#pragma once

#include <vector>

namespace lockstep {

struct LocalRank {
  int rank = 0, process = 0;
  bool is_stopped = false;  // as by SIGSTOP
};

// By rank, as /proc shows them: this program's processes that have this process's launcher. Contains
// this process.
std::vector<LocalRank> local_ranks();

}  // namespace lockstep
