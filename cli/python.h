// The Python that draws: the one on PATH may lack matplotlib while the system's has it.
#pragma once

#include <string>

namespace lockstep {

// The first of python3 on PATH and /usr/bin/python3 that can import matplotlib; empty if none can.
std::string python_with_matplotlib();

}  // namespace lockstep
