// The hardware of a cluster, from a sheet of its vendor. Never tuned: what software makes of it is
// in the profile.
#pragma once

#include <string>

#include "parallel/planner/constants.h"

namespace lockstep {

struct ClusterSheet {
  std::string name;
  // Dense products, FLOP/s of a GPU. 0: it has none of this type.
  double peak_16bit = 0, peak_fp8 = 0;
  double multiprocessors = 0;
  double memory_bytes = 0, memory_bytes_per_second = 0;
  // Of a GPU, in one direction.
  double nvlink_bytes_per_second = 0, nic_bytes_per_second = 0;
  double gpus_per_node = 0;  // joined by NVLink, each with a NIC of its own
};

const std::vector<ConstantField<ClusterSheet>>& cluster_fields();
// Reads the sheet of this name, or the .json file at this path. Throws Error (bad_input) like
// read_fields.
ClusterSheet cluster_sheet(const std::string& planner_folder, const std::string& name_or_path);

}  // namespace lockstep
