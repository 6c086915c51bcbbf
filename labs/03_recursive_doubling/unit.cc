// Names the functions of this lab for the grader.
#include "labs/unit.h"
#include <recursive_doubling.cc>

extern "C" lockstep::LabUnit lockstep_lab_unit();

lockstep::LabUnit lockstep_lab_unit() {
  using namespace lockstep;
  LabUnit unit;
  unit.all_reduce = recursive_doubling_all_reduce;
  return unit;
}
