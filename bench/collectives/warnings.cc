#include "bench/collectives/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace lockstep {

std::vector<std::string> warnings_of(Communicator& comm, const BenchOptions& options) {
  std::vector<std::string> warnings;
  for (const std::string& flag : options.without_effect) warnings.push_back(flag);
  if (comm.transport().name() == "virtual") return warnings;
  VendorCollectives* const vendor = comm.transport().vendor();
  const auto has_peer = [&](std::string_view library) {
    return std::ranges::any_of(options.peers,
                               [&](const auto& peer) { return peer->library() == library; });
  };
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  if (comm.ranks_per_node() > cores) {
    warnings.push_back(fmt::format("{} ranks share {} cores: times include waiting for a core",
                                   comm.ranks_per_node(), cores));
    if (has_peer("mpich") || (vendor && vendor->library().find("MPICH") != std::string_view::npos))
      warnings.emplace_back(
          "MPICH 4.0 does not yield its core while it waits: with more ranks than cores its "
          "times are the system's time slices");
  }
  if (has_peer("gloo") && 2 * comm.size() > cores)
    warnings.emplace_back(
        "gloo receives on a second thread of each rank, which does not yield its core while "
        "the rank sends: with fewer cores than threads its times may be the system's time slices");
  for (const std::string& hindrance : comm.transport().hindrances()) warnings.push_back(hindrance);
  return warnings;
}

std::string stall_warning(const BenchResult& result) {
  // Linux delays an acknowledgement by up to 40 ms, to send it along with data.
  constexpr double delay_s = 0.04, usual_s = 0.02;
  const double median = percentile(result.seconds, 0.5);
  if (result.transport != "mpi" || median > usual_s) return "";
  const auto held_up = std::ranges::count_if(
      result.seconds, [&](double seconds) { return seconds - median > 0.9 * delay_s; });
  if (held_up == 0) return "";
  return fmt::format(
      "{} of {} B: {} of {} iterations took {:.0f} ms longer than the median, like TCP's delayed "
      "acknowledgements; try a route with quickack, or another interface",
      result.algorithm, result.problem.bytes(), held_up, result.seconds.size(), delay_s * 1e3);
}

}  // namespace lockstep
