#include "collectives/transport/mpi/network_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <filesystem>
#include <set>

namespace lockstep {
namespace {

// Bridges have no link of their own, and may be unused.
bool is_bridge(const std::string& interface) {
  std::error_code ignored;
  return std::filesystem::exists("/sys/class/net/" + interface + "/bridge", ignored);
}

// Returns the interfaces with an address that carry no data.
std::set<std::string> interfaces_down() {
  std::set<std::string> down;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return down;
  for (const ifaddrs* each = all; each; each = each->ifa_next) {
    const bool has_address = each->ifa_addr && (each->ifa_addr->sa_family == AF_INET ||
                                                each->ifa_addr->sa_family == AF_INET6);
    constexpr unsigned up = IFF_UP | IFF_RUNNING;
    if (has_address && (each->ifa_flags & up) != up && !is_bridge(each->ifa_name))
      down.insert(each->ifa_name);
  }
  freeifaddrs(all);
  return down;
}

}  // namespace

std::string network_state() {
  const std::set<std::string> down = interfaces_down();
  if (down.empty()) return "the network between the hosts is down";
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return fmt::format("the network is down: {} of {} {} no link", fmt::join(down, ", "), host,
                     down.size() == 1 ? "has" : "have");
}

}  // namespace lockstep
