// Which links of a fabric are slow, and whether that is due to a unit, which is slow with all others,
// or to a single cable. Units are the hosts, or the ranks of one host.
//
// A link is compared only with links of its class: its ratio is its time divided by that of the
// class's fast links (the lower quartile, so that it holds while fewer than half of the units are
// slow). A unit's ratio is the lower median over its links. First find_outliers() names units; then,
// of the links that touch none of them, single ones, which must also be slow next to the other links
// of each of their ends. A unit with one judged link is not named, as the link or its other end may
// be to blame as well. Links from a unit and links to it are told apart. What was as fast as the
// others in its fastest sample is not named: of many links, some are slow by chance for most of a
// short run.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "bench/results/outliers.h"

namespace lockstep {

struct LinkTime {
  int from = 0, to = 0;  // indices of units
  int link_class = 0;
  MeasuredTime time;
  double fastest = std::numeric_limits<double>::infinity();  // sample, if known
};

enum class SlowPart { unit, sending, receiving, cable, one_way };

struct SlowLink {
  SlowPart part = SlowPart::unit;
  int from = 0, to = 0;  // of a unit: both are the unit
  double ratio = 1;      // its time, relative to that of the others
  int slow = 0, of = 0;  // of a unit: so many of its links are slow, of so many
  // Of a cable: no other link of one of its ends was judged, so that end may be to blame as well.
  bool is_only_link = false;
};

// A single link is named only among so many: the links between four units.
inline constexpr std::size_t fewest_links = 6;

// Links are `directed` if from -> to and to -> from are measured separately. Classes of fewer than 3
// links are not judged. Slowest first, units before links.
std::vector<SlowLink> slow_links(int units, std::span<const LinkTime> links, bool directed,
                                 const OutlierRule& rule);

}  // namespace lockstep
