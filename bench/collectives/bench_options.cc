#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <limits>

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

std::optional<std::int64_t> bytes_from(std::string_view text) {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  std::int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string suffix(end, text.data() + text.size());
  std::ranges::transform(suffix, suffix.begin(), [](unsigned char c) { return std::toupper(c); });
  constexpr std::array<std::string_view, 4> suffixes = {"", "K", "M", "G"};
  const auto power = std::ranges::find(suffixes, suffix) - suffixes.begin();
  if (code == std::errc::invalid_argument || text.starts_with('-') || power == std::ssize(suffixes))
    return std::nullopt;
  const bool is_too_large =
      code == std::errc::result_out_of_range || number > largest >> (10 * power);
  return is_too_large ? largest : number << (10 * power);
}

std::vector<std::int64_t> sizes_of(const BenchOptions& options, DType dtype, int ranks) {
  if (options.operation == name_of(Operation::barrier)) return {0};
  if (!options.skew.bytes.empty())
    return {options.skew.mean_bytes / element_bytes(dtype) * element_bytes(dtype)};
  // As nccl-tests does for operations that need equal chunks.
  const Operation operation = find_operation(options.operation).operation;
  const bool has_equal_chunks = operation == Operation::all_to_all ||
                                (operation == Operation::all_to_all_v && options.skew.zipf == 0);
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
  within(options.min_bytes, 1, most_buffer_bytes, "-b");
  within(options.max_bytes, options.min_bytes, most_buffer_bytes, "-e");
  within(options.factor, 2, 1024, "-f");
  within(options.step_bytes, 0, most_buffer_bytes, "-i");
  within(options.iterations, 1, 1'000'000, "-n");
  within(options.warmup, 0, 1'000'000, "-w");
  within(options.operations_per_iteration, 1, 1'000'000, "-m");
  within(options.repetitions, 1, 10'000, options.table.each_repetition ? "-N" : "--repetitions");
  within(options.offset, 0, 1'000'000, "-u");
  within(options.table.skipped_iterations, 0, options.iterations - 1, "-K");
  within(options.checks, 0, 1'000'000, "-c");
  within(options.communicators, 1, 64, "--communicators");
  within(ranks, 1, std::numeric_limits<int>::max(), "--ranks");
  within(options.root, 0, ranks - 1, "-r");
  require(options.device->stores() || (options.checks == 0 && options.buffers == Buffers::hot),
          "--device none with -c 1 or --buffers",
          "the device none has no buffers and no results to check");
  require(!options.device->enqueues() || !options.scaled_sums, "--device cuda with -o mulsum",
          "the host multiplies the inputs; use sum");
  require(!options.device->enqueues() || options.buffers != Buffers::consume,
          "--device cuda with --buffers consume", "the host does not read GPU buffers; use dirty");
  if (options.blocks.are_apart()) {
    require(options.device->stores(), "--blocks with --device none",
            "without data nothing is packed; add -c 1");
    require(!options.device->enqueues(), "--blocks with --device cuda",
            "the host packs the blocks; use --device host");
  }
  const OperationEntry& entry = find_operation(options.operation);
  for (const std::string& algorithm : options.algorithms)
    if (algorithm != "all" && algorithm != "auto")
      find_algorithm(entry.algorithms, options.operation, algorithm);
}

}  // namespace lockstep
