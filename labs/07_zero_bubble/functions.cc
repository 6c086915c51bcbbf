// Names the functions of this lab for the grader.
#include "labs/functions.h"
#include <zero_bubble.cc>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

lockstep::LabFunctions lockstep_lab_functions() {
  using namespace lockstep;
  LabFunctions functions;
  functions.zb_h1 = zb_h1;
  functions.zb_h2 = zb_h2;
  return functions;
}
