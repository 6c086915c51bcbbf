// The classes of links that a fabric has, found from measured latencies: ranks on one socket or two,
// hosts behind one switch or several. Nothing is assumed about their speeds.
//
// If the sorted latencies have a gap, links below it join units to blocks, as hosts behind one
// switch. The gap is a level of the fabric if at least two blocks have two units or more, and most
// units are in such blocks. A slow link, or a unit that is slow with all others, makes no such
// blocks, so it does not become a class of its own and hide there.
#pragma once

#include <span>
#include <vector>

#include "bench/results/outliers.h"

namespace lockstep {

// The latency between two of a group's units, by index.
struct UnitLatency {
  int first = 0, second = 0;
  MeasuredTime time;
};

// The class of each given link, from 0 for the nearest: the number of levels at which its units are
// in different blocks.
std::vector<int> classes_of(int units, std::span<const UnitLatency> links);

}  // namespace lockstep
