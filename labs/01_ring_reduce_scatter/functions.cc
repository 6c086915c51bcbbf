// Names the functions of this lab for the grader.
#include "labs/functions.h"
#include <ring_reduce_scatter.cc>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

lockstep::LabFunctions lockstep_lab_functions() {
  using namespace lockstep;
  LabFunctions functions;
  functions.reduce_scatter = [](Communicator& comm, Slice data, ReduceOp op) {
    ring_reduce_scatter(comm, data, op, whole_ring(comm));
    comm.complete(Chunks(data, comm.size())[comm.rank()], op);
  };
  return functions;
}
