// Names the functions of this lab for the grader.
#include "labs/unit.h"
#include <ring_all_gather.cc>

extern "C" lockstep::LabUnit lockstep_lab_unit();

lockstep::LabUnit lockstep_lab_unit() {
  using namespace lockstep;
  LabUnit unit;
  unit.all_gather = [](Communicator& comm, Slice data) {
    ring_all_gather(comm, data, whole_ring(comm));
  };
  return unit;
}
