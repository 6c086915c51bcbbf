#include <fmt/format.h>

#include "bench/collectives/collective.h"

namespace lockstep {

Buffers buffers_from_name(std::string_view name) {
  for (const Buffers buffers : {Buffers::hot, Buffers::dirty, Buffers::consume})
    if (name_of(buffers) == name) return buffers;
  throw Error(ErrorKind::bad_input, fmt::format("--buffers '{}'", name),
              {.hint = "choose hot, dirty or consume"});
}

std::string_view name_of(Buffers buffers) {
  switch (buffers) {
    case Buffers::hot:
      return "hot";
    case Buffers::dirty:
      return "dirty";
    case Buffers::consume:
      return "consume";
  }
  return "unknown";
}

std::vector<std::int64_t> sizes_of(const BenchOptions& options, DType dtype, int ranks) {
  if (options.operation == name_of(Operation::barrier)) return {0};
  // As nccl-tests does for operations that need equal chunks.
  const Operation operation = find_operation(options.operation).operation;
  const bool has_equal_chunks =
      operation == Operation::all_to_all || operation == Operation::all_to_all_v;
  const Count shared = has_equal_chunks ? ranks : 1;
  const Count whole = element_bytes(dtype) * shared;
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes;
       bytes = options.step_bytes > 0 ? bytes + options.step_bytes : bytes * options.factor) {
    const std::int64_t rounded = bytes / whole * whole;
    if (rounded > 0 && (sizes.empty() || sizes.back() != rounded)) sizes.push_back(rounded);
  }
  return sizes;
}

void check(const BenchOptions& options, int ranks) {
  const auto within = [](std::int64_t value, std::int64_t least, std::int64_t most,
                         const char* flag) {
    require(value >= least && value <= most, fmt::format("{} {}", flag, value),
            fmt::format("use a number from {} to {}", least, most));
  };
  constexpr std::int64_t most_bytes = std::int64_t{1} << 36;
  within(options.min_bytes, 1, most_bytes, "-b");
  within(options.max_bytes, options.min_bytes, most_bytes, "-e");
  within(options.factor, 2, 1024, "-f");
  within(options.step_bytes, 0, most_bytes, "-i");
  within(options.iterations, 1, 1'000'000, "-n");
  within(options.warmup, 0, 1'000'000, "-w");
  within(options.operations_per_iteration, 1, 1'000'000, "-m");
  within(options.repetitions, 1, 10'000, "--repetitions");
  within(options.root, 0, ranks - 1, "-r");
  require(options.device->stores() || (!options.check && options.buffers == Buffers::hot),
          "--device none with -c 1 or --buffers",
          "the device none has no buffers and no results to check");
  require(!options.device->enqueues() || options.buffers != Buffers::consume,
          "--device cuda with --buffers consume", "the host does not read GPU buffers; use dirty");
  const OperationEntry& entry = find_operation(options.operation);
  for (const std::string& algorithm : options.algorithms)
    if (algorithm != "all" && algorithm != "auto")
      find_algorithm(entry.algorithms, options.operation, algorithm);
}

}  // namespace lockstep
