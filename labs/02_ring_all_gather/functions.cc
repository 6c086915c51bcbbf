// Names the functions of this lab for the grader.
#include "labs/functions.h"
#include <ring_all_gather.cc>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

lockstep::LabFunctions lockstep_lab_functions() {
  using namespace lockstep;
  LabFunctions functions;
  functions.all_gather = [](Communicator& comm, Slice data) {
    ring_all_gather(comm, data, whole_ring(comm));
  };
  return functions;
}
