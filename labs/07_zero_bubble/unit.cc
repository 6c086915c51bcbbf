// Names the functions of this lab for the grader.
#include "labs/unit.h"
#include <zero_bubble.cc>

extern "C" lockstep::LabUnit lockstep_lab_unit();

lockstep::LabUnit lockstep_lab_unit() {
  using namespace lockstep;
  LabUnit unit;
  unit.zb_h1 = zb_h1;
  unit.zb_h2 = zb_h2;
  return unit;
}
