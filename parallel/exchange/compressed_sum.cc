#include "parallel/exchange/compressed_sum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "collectives/base/error.h"
#include "parallel/exchange/power_sgd.h"
#include "parallel/exchange/projected_sum.h"
#include "parallel/exchange/top_k.h"
#include "parallel/exchange/two_phase.h"

namespace lockstep {
namespace {

enum class Number : std::uint8_t { none, rank, share, bits };

struct ExchangeEntry {
  std::string_view name, summary;
  Number number = Number::none;
  std::string_view codec = {};  // of a sum in two phases
  bool has_feedback = false;
  bool by_node = false;
  std::string_view formula = {};  // of replicas that all-reduce
};

constexpr std::string_view projected = "galore";

const std::vector<ExchangeEntry>& exchanges() {
  static const std::vector<ExchangeEntry> entries = {
      {.name = "int8",
       .summary = "in blocks with one scale each",
       .codec = "int8",
       .formula = "2(P-1) * int8(Psi/P)"},
      {.name = "mxfp8",
       .summary = "8-bit floating point numbers in blocks with one power of two each",
       .codec = "mxfp8",
       .formula = "2(P-1) * mxfp8(Psi/P)"},
      {.name = "onebit",
       .summary = "signs and one size, with error feedback",
       .codec = "onebit",
       .has_feedback = true,
       .formula = "2(P-1) * onebit(Psi/P)"},
      {.name = "signsgd",
       .summary = "signs, by majority vote",
       .codec = "sign",
       .formula = "2(P-1) * sign(Psi/P)"},
      {.name = "topk",
       .summary = "topk:F: the share F of gradients that is the largest, with error feedback",
       .number = Number::share,
       .has_feedback = true,
       .formula = "(P-1) * F * Psi * (beta + 4)"},
      {.name = "powersgd",
       .summary = "powersgd:R: matrices of rank R, with error feedback",
       .number = Number::rank,
       .has_feedback = true,
       .formula = "2(P-1)/P * (R * (m + q) of matrices + vectors) * beta"},
      {.name = projected,
       .summary = "matrices that GaLore steps, as it projects them",
       .formula = "2(P-1)/P * (projections + rest) * beta"},
      {.name = "qgz",
       .summary = "qgz:B: sharded gradients in B = 4 or 8 bits, added up within nodes, then "
                  "between them",
       .number = Number::bits,
       .by_node = true}};
  return entries;
}

std::vector<std::string> texts() {
  std::vector<std::string> all = {"none"};
  for (const ExchangeEntry& entry : exchanges())
    all.push_back(fmt::format("{}{}", entry.name,
                              entry.number == Number::rank    ? ":R"
                              : entry.number == Number::share ? ":F"
                              : entry.number == Number::bits  ? ":B"
                                                              : ""));
  return all;
}

const ExchangeEntry* find_exchange(std::string_view name) {
  const auto found = std::ranges::find(exchanges(), name, &ExchangeEntry::name);
  return found == exchanges().end() ? nullptr : &*found;
}

}  // namespace

bool ExchangeMethod::has_feedback() const { return find_exchange(name)->has_feedback; }
bool ExchangeMethod::adds_by_node() const { return find_exchange(name)->by_node; }
std::string_view ExchangeMethod::codec() const {
  const ExchangeEntry& entry = *find_exchange(name);
  if (entry.number == Number::bits) return number == 4 ? "int4" : "int8";
  return entry.has_feedback || entry.codec == "sign" ? std::string_view{} : entry.codec;
}
bool ExchangeMethod::shows_overflow() const { return find_exchange(name)->codec != "sign"; }

ExchangeMethod exchange_from_text(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const ExchangeEntry* const entry = find_exchange(name);
  const bool has_number = colon != std::string_view::npos;
  require(entry != nullptr && has_number == (entry->number != Number::none),
          fmt::format("--exchange {}", text), fmt::format("choose {}", fmt::join(texts(), ", ")));
  ExchangeMethod method{.name = std::string(name)};
  if (!has_number) return method;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, method.number);
  const auto [fits, hint] = [&]() -> std::pair<bool, std::string_view> {
    const double x = method.number;
    switch (entry->number) {
      case Number::rank:
        return {x >= 1 && x <= 1 << 20 && x == static_cast<int>(x),
                "the rank is a whole number of at least 1: powersgd:2"};
      case Number::bits:
        return {x == 4 || x == 8, "a gradient has 4 or 8 bits: qgz:4"};
      default:
        return {x > 0 && x <= 1, "the share is above 0 and at most 1: topk:0.01"};
    }
  }();
  require(error == std::errc() && stop == end && fits, fmt::format("--exchange {}", text),
          std::string(hint));
  return method;
}

std::string exchange_summaries() {
  std::vector<std::string> summaries;
  for (const ExchangeEntry& entry : exchanges())
    summaries.push_back(fmt::format("{}, {}", entry.name, entry.summary));
  return fmt::format("{}", fmt::join(summaries, "; "));
}

void require_host(const ExchangeMethod& method, const Device& device) {
  require(!device.enqueues(), fmt::format("--exchange {} in the memory of a GPU", method.name),
          "gradients are encoded by the processor: use --device host, or --exchange bf16");
}

std::unique_ptr<CompressedSum> make_compressed_sum(const ExchangeMethod& method, DType dtype,
                                                   const std::vector<ExchangedBucket>& buckets,
                                                   Communicator& comm, Device& device) {
  require_host(method, device);
  const ExchangeEntry& entry = *find_exchange(method.name);
  if (entry.number == Number::share) return make_top_k(method.number, dtype, buckets, comm, device);
  if (entry.number == Number::rank)
    return make_power_sgd(static_cast<Count>(method.number), dtype, buckets, comm, device);
  if (entry.name == projected)
    return make_projected_sum(method.projection, dtype, buckets, comm, device);
  return make_two_phase(entry.codec, entry.has_feedback, dtype, buckets, comm, device);
}

Traffic exchange_traffic(const ExchangeMethod& method, DType dtype, const ExchangedBucket& bucket,
                         int ranks, int rank) {
  const ExchangeEntry& entry = *find_exchange(method.name);
  if (entry.number == Number::share)
    return top_k_traffic(method.number, dtype, bucket.range.count, ranks);
  if (entry.number == Number::rank)
    return power_sgd_traffic(static_cast<Count>(method.number), dtype, bucket, ranks, rank);
  if (entry.name == projected)
    return projected_traffic(method.projection, dtype, bucket, ranks, rank);
  return two_phase_traffic(entry.codec, bucket.range.count, ranks);
}

ExchangeMemory exchange_memory(const ExchangeMethod& method, DType dtype,
                               const std::vector<ExchangedBucket>& buckets, int ranks, int rank) {
  const ExchangeEntry& entry = *find_exchange(method.name);
  if (entry.number == Number::share) return top_k_memory(method.number, dtype, buckets, ranks);
  if (entry.number == Number::rank)
    return power_sgd_memory(static_cast<Count>(method.number), dtype, buckets);
  if (entry.name == projected)
    return {.work = projected_memory_bytes(method.projection, dtype, buckets)};
  return two_phase_memory(entry.codec, entry.has_feedback, dtype, buckets, ranks, rank);
}

Count exchange_scratch_bytes(const ExchangeMethod& method, DType dtype,
                             const ExchangedBucket& bucket, int ranks, int rank) {
  if (find_exchange(method.name)->number == Number::rank)
    return power_sgd_scratch_bytes(static_cast<Count>(method.number), dtype, bucket, ranks, rank);
  return 0;
}

std::string exchange_formula(const ExchangeMethod& method) {
  return std::string(find_exchange(method.name)->formula);
}

}  // namespace lockstep
