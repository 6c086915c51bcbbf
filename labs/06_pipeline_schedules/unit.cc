// Names the functions of this lab for the grader.
#include "labs/unit.h"
#include <gpipe.cc>
#include <one_f_one_b.cc>

extern "C" lockstep::LabUnit lockstep_lab_unit();

lockstep::LabUnit lockstep_lab_unit() {
  using namespace lockstep;
  LabUnit unit;
  unit.gpipe = gpipe;
  unit.one_f_one_b = one_f_one_b;
  return unit;
}
