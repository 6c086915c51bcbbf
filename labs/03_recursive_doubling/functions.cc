// Names the functions of this lab for the grader.
#include "labs/functions.h"
#include <recursive_doubling.cc>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

lockstep::LabFunctions lockstep_lab_functions() {
  using namespace lockstep;
  LabFunctions functions;
  functions.all_reduce = recursive_doubling_all_reduce;
  return functions;
}
