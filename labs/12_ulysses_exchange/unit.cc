// Names the functions of this lab for the grader.
#include "labs/unit.h"
#include <ulysses_exchange.cc>

extern "C" lockstep::LabUnit lockstep_lab_unit();

lockstep::LabUnit lockstep_lab_unit() {
  using namespace lockstep;
  LabUnit unit;
  unit.all_to_all = pairwise_all_to_all;
  return unit;
}
