#include "cli/topology.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "collectives/base/json_text.h"
#include "collectives/base/rank_site.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Returns the first line of a small file; empty if it cannot be read.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the number in a name like "cpu12" after its prefix `before`.
std::optional<int> number_after(std::string_view name, std::string_view before) {
  if (!name.starts_with(before)) return {};
  name.remove_prefix(before.size());
  int number = 0;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), number);
  return fault == std::errc() && end == name.data() + name.size() ? std::optional(number)
                                                                  : std::nullopt;
}

void add_text(ordered_json& into, const char* key, const fs::path& path) {
  if (const std::string line = first_line(path); !line.empty()) into[key] = line;
}
// Linux writes -1 where it does not know.
void add_number(ordered_json& into, const char* key, const fs::path& path) {
  if (const auto number = number_after(first_line(path), ""); number && *number >= 0)
    into[key] = *number;
}

// Returns a folder's entries, sorted so that cpu2 comes before cpu10.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code missing;
  const auto end = fs::directory_iterator();
  for (auto entry = fs::directory_iterator(folder, missing); !missing && entry != end;
       entry.increment(missing))
    entries.push_back(entry->path());
  std::ranges::sort(entries, [](const fs::path& a, const fs::path& b) {
    const std::string first = a.filename(), second = b.filename();
    return std::pair(first.size(), first) < std::pair(second.size(), second);
  });
  return entries;
}

ordered_json processors(const fs::path& system) {
  ordered_json all = ordered_json::array();
  for (const fs::path& entry : entries_of(system / "devices/system/cpu")) {
    const auto number = number_after(entry.filename().string(), "cpu");
    if (!number || !fs::exists(entry / "topology")) continue;  // offline
    ordered_json one = {{"cpu", *number}};
    add_number(one, "socket", entry / "topology/physical_package_id");
    add_number(one, "core", entry / "topology/core_id");
    all.push_back(std::move(one));
  }
  return all;
}

// "Node 0 MemTotal:       16316860 kB"
std::optional<std::int64_t> memory_bytes(const fs::path& node) {
  std::ifstream info(node / "meminfo");
  std::string word;
  while (info >> word)
    if (std::int64_t kib = 0; word == "MemTotal:" && info >> kib) return kib * 1024;
  return {};
}

ordered_json memory_nodes(const fs::path& system) {
  ordered_json all = ordered_json::array();
  for (const fs::path& entry : entries_of(system / "devices/system/node")) {
    const auto number = number_after(entry.filename().string(), "node");
    if (!number) continue;
    ordered_json one = {{"node", *number}};
    add_text(one, "cpus", entry / "cpulist");
    add_text(one, "distances", entry / "distance");
    if (const auto bytes = memory_bytes(entry)) one["memory_bytes"] = *bytes;
    all.push_back(std::move(one));
  }
  return all;
}

ordered_json adapters(const fs::path& system) {
  ordered_json all = ordered_json::array();
  for (const fs::path& entry : entries_of(system / "class/net")) {
    if (!fs::exists(entry / "operstate")) continue;
    ordered_json one = {{"name", entry.filename().string()}};
    add_text(one, "state", entry / "operstate");
    add_number(one, "mbit_per_s", entry / "speed");
    add_number(one, "mtu", entry / "mtu");
    add_number(one, "node", entry / "device/numa_node");
    all.push_back(std::move(one));
  }
  for (const fs::path& adapter : entries_of(system / "class/infiniband"))
    for (const fs::path& port : entries_of(adapter / "ports")) {
      ordered_json one = {{"name", adapter.filename().string() + "/" + port.filename().string()}};
      add_text(one, "state", port / "state");
      add_text(one, "rate", port / "rate");
      add_number(one, "node", adapter / "device/numa_node");
      all.push_back(std::move(one));
    }
  return all;
}

ordered_json gpus(const fs::path& system) {
  constexpr std::string_view displays = "0x03";  // the class of PCI devices
  ordered_json all = ordered_json::array();
  for (const fs::path& entry : entries_of(system / "bus/pci/devices")) {
    if (!first_line(entry / "class").starts_with(displays)) continue;
    ordered_json one = {{"address", entry.filename().string()}};
    add_text(one, "vendor", entry / "vendor");
    add_text(one, "device", entry / "device");
    add_text(one, "link_speed", entry / "current_link_speed");
    add_number(one, "link_width", entry / "current_link_width");
    add_number(one, "node", entry / "numa_node");
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

std::string topology_json(const fs::path& system) {
  return json_text({{"schema", "lockstep.topology/1"},
                    {"host", host_name()},
                    {"processors", processors(system)},
                    {"memory_nodes", memory_nodes(system)},
                    {"network_adapters", adapters(system)},
                    {"gpus", gpus(system)}});
}

}  // namespace lockstep
