// Names the functions of this lab for the grader.
#include "labs/functions.h"
#include <ulysses_exchange.cc>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

lockstep::LabFunctions lockstep_lab_functions() {
  using namespace lockstep;
  LabFunctions functions;
  functions.all_to_all = pairwise_all_to_all;
  return functions;
}
