// Names the functions of this lab for the grader.
#include "labs/unit.h"
#include <ring_reduce_scatter.cc>

extern "C" lockstep::LabUnit lockstep_lab_unit();

lockstep::LabUnit lockstep_lab_unit() {
  using namespace lockstep;
  LabUnit unit;
  unit.reduce_scatter = [](Communicator& comm, Slice data, ReduceOp op) {
    ring_reduce_scatter(comm, data, op, whole_ring(comm));
    comm.complete(Chunks(data, comm.size())[comm.rank()], op);
  };
  return unit;
}
