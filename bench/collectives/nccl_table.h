// The table of nccl-tests, column for column, for programs that read its logs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/collectives/collective.h"

namespace lockstep {

// The name of a type in nccl-tests: "float".
std::string_view nccl_name_of(DType dtype);
// A number as nccl-tests prints it: at most `width` characters, as many decimals as fit, up to two.
std::string nccl_number(double value, int width);

// A line for each rank: its process, host and device. Every rank calls it; rank 0 gets the lines.
std::vector<std::string> nccl_devices(const BenchGroups& groups);

// `notes` are lines about the run, without the sign #.
void print_nccl_head(const BenchOptions& options, const OperationEntry& entry, int ranks,
                     const BenchRun& run, const std::vector<std::string>& notes);
// Call it for the out-of-place result, then for the in-place one.
void print_nccl_row(const BenchResult& result, const OperationEntry& entry,
                    const BenchOptions& options);
void print_nccl_end(const OperationEntry& entry);

}  // namespace lockstep
