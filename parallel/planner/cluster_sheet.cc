#include "parallel/planner/cluster_sheet.h"

#include <nlohmann/json.hpp>

namespace lockstep {

const std::vector<ConstantField<ClusterSheet>>& cluster_fields() {
  static const std::vector<ConstantField<ClusterSheet>> fields = {
      {"peak_16bit", "FLOP/s", &ClusterSheet::peak_16bit},
      {"peak_fp8", "FLOP/s", &ClusterSheet::peak_fp8, true},
      {"multiprocessors", "count", &ClusterSheet::multiprocessors},
      {"memory", "B", &ClusterSheet::memory_bytes},
      {"memory_bandwidth", "B/s", &ClusterSheet::memory_bytes_per_second},
      {"nvlink_bandwidth", "B/s", &ClusterSheet::nvlink_bytes_per_second},
      {"nic_bandwidth", "B/s", &ClusterSheet::nic_bytes_per_second},
      {"gpus_per_node", "count", &ClusterSheet::gpus_per_node}};
  return fields;
}

ClusterSheet cluster_sheet(const std::string& planner_folder, const std::string& name_or_path) {
  const std::string path = constants_path(planner_folder + "/clusters", name_or_path, "cluster");
  const auto file = read_constants_file(path, "lockstep.cluster/1",
                                        {"schema", "name", "description", "constants"});
  ClusterSheet sheet;
  sheet.name = file.at("name");
  read_fields(file, path, cluster_fields(), sheet);
  return sheet;
}

}  // namespace lockstep
