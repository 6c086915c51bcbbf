#include "bench/burn_in/burn_in.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/results/environment.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int samples_per_pass = 4, all_reduces_per_pass = 4;
constexpr Count most_all_reduced = Count{1} << 30;  // bytes

// What a rank measured in one pass.
struct OwnPass {
  std::vector<double> products, copies;
  std::vector<StepBits> bits;
  std::int64_t wrong_sums = 0;
};

std::string text_of(const OwnPass& own) {
  json bits = json::array();
  for (const StepBits& step : own.bits) bits.push_back({step.first, step.again});
  return json_line(json{own.products, own.copies, bits, own.wrong_sums});
}

OwnPass own_pass_of(const std::string& text) {
  const json values = parse_json(text, "what a rank measured");
  OwnPass own{.products = values[0], .copies = values[1], .bits = {}, .wrong_sums = values[3]};
  for (const json& step : values[2]) own.bits.push_back({.first = step[0], .again = step[1]});
  return own;
}

// The number, or why there are none.
std::pair<int, std::string> gpus_here() {
  try {
    return {cuda_gpus(), ""};
  } catch (const Error& error) {
    return {0, error.message()};
  }
}

// On rank 0, by rank.
std::vector<RankMachine> gather_machines(Communicator& comm, bool counts_gpus) {
  const RankSite site = site_of(comm.records().ledger);
  const auto environment = environment_json();
  const auto [gpus, why_no_gpus] = counts_gpus ? gpus_here() : std::pair(0, std::string());
  std::vector<RankMachine> machines;
  for (const std::string& text : gather_text(
           comm,
           json_line(json{site.host, site.device, environment["processor"], environment["cores"],
                          environment["memory_bytes"], gpus, why_no_gpus}))) {
    const json own = parse_json(text, "the machine of a rank");
    machines.push_back({.site = {.host = own[0], .device = own[1]},
                        .processor = own[2],
                        .cores = own[3],
                        .memory_bytes = own[4],
                        .gpus = own[5],
                        .why_no_gpus = own[6]});
  }
  return machines;
}

// Ranks with the same processor and kind of device compute the same bits.
std::vector<int> kinds_of(const std::vector<RankMachine>& machines) {
  std::map<std::pair<std::string, bool>, int> numbers;
  std::vector<int> kinds;
  for (const RankMachine& machine : machines)
    kinds.push_back(numbers
                        .try_emplace({machine.processor, machine.site.device == "host"},
                                     static_cast<int>(numbers.size()))
                        .first->second);
  return kinds;
}

// Whole numbers, whose sum over the ranks is exact in any order. They differ from pass to pass.
float number_of(int rank, std::int64_t pass, Count i) {
  return static_cast<float>((i + pass + rank) % 61);
}

class PassesOfRank {
 public:
  PassesOfRank(RankContext& context, const BurnInOptions& options, const LaunchOptions& world)
      : context_(context),
        comm_(context.world),
        options_(options),
        world_(world),
        product_(*options.device, options.product_size),
        copy_(*options.device, options.copy_bytes),
        largest_(*std::ranges::max_element(options.all_reduce_bytes) / element_bytes(DType::f32)),
        sums_(comm_.scratch({.dtype = DType::f32, .device = options.device}, largest_)) {
    run_.transport = comm_.transport().name();
    run_.machines =
        gather_machines(comm_, options.device->enqueues() || options.expected.gpus.has_value());
    kinds_ = kinds_of(run_.machines);
    const std::size_t ranks = run_.machines.size();
    run_.products.resize(ranks);
    run_.copies.resize(ranks);
    run_.wrong_sums.resize(ranks);
    for (const WrongBits kind : {WrongBits::changing, WrongBits::different, WrongBits::disputed})
      run_.wrong_bits[kind].resize(ranks);
    run_.all_reduces.resize(options.all_reduce_bytes.size());
  }

  // Returns whether another pass is due; the same on all ranks.
  bool is_due() const {
    int due = options_.passes > 0 ? run_.passes < options_.passes
                                  : run_.passes == 0 || seconds() < 60 * options_.minutes;
    broadcast(comm_, host_slice(std::span(&due, 1)), 0);
    return due != 0;
  }

  const BurnInRun& take() {
    OwnPass own;
    for (int i = 0; i < samples_per_pass; ++i) {
      own.products.push_back(product_.seconds());
      own.copies.push_back(copy_.seconds());
    }
    measure_links();
    const std::vector<double> all_reduces = measure_all_reduces();
    own.wrong_sums = wrong_sums();
    own.bits = replay(options_.training, *options_.device, flipped_here(),
                      passes_ * options_.training.steps);
    const std::vector<std::string> all = gather_text(comm_, text_of(own));
    if (comm_.rank() == 0) add(all, all_reduces);
    ++passes_;
    return run_;
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  std::optional<FlippedBit> flipped_here() const {
    const auto& flipped = options_.flipped;
    return flipped && flipped->rank == comm_.rank() ? flipped : std::nullopt;
  }

  // Where a pass does not measure all links, later ones measure others, once these can be judged.
  void measure_links() {
    if (comm_.size() == 1) return;
    constexpr int needed = static_cast<int>(fewest_samples);
    PairsOptions options = options_.pairs;
    const int passes_of_a_link = (needed + options.iterations - 1) / options.iterations;
    options.first_round = static_cast<int>(passes_ / passes_of_a_link);
    PairsRun now = measure_pairs(context_, options, world_);
    if (comm_.rank() > 0) return;
    for (MeasuredLink& link : now.links) {
      KnownLink& known = links_[link.ranks];
      known.measured = passes_;
      for (std::size_t test = 0; test < link_tests; ++test)
        for (const double sample : link.seconds[test]) known.samples[test].add(sample);
      known.link = std::move(link);
    }
    forget_oldest();
    now.links.clear();
    for (auto& [ranks, known] : links_) {
      MeasuredLink& link = now.links.emplace_back(known.link);
      for (std::size_t test = 0; test < link_tests; ++test)
        link.seconds[test] = known.samples[test].values();
    }
    find_classes(now);
    now.slow = find_slow(now, options_.pairs, world_.clock);
    run_.links = std::move(now);
  }
  void forget_oldest() {
    while (links_.size() > most_links)
      links_.erase(std::ranges::min_element(
          links_, {}, [](const auto& known) { return known.second.measured; }));
  }

  Slice sums_of(Count bytes) const {
    return sums_.slice(bytes / element_bytes(DType::f32), DType::f32);
  }

  // The fastest of several, by size.
  std::vector<double> measure_all_reduces() {
    std::vector<Timed> timed;
    for (const Count bytes : options_.all_reduce_bytes)
      timed.push_back({.prepare = [this, bytes] { options_.device->zero(sums_of(bytes)); },
                       .operation = [this, bytes] { all_reduce(comm_, sums_of(bytes)); },
                       .elsewhere = {}});
    std::vector<double> fastest;
    for (const auto& times : measure(comm_, 1, all_reduces_per_pass, timed))
      fastest.push_back(*std::ranges::min_element(times));
    return fastest;
  }

  // Returns how many elements of the largest all-reduce are wrong on this rank.
  std::int64_t wrong_sums() {
    std::vector<float> numbers(static_cast<std::size_t>(largest_)), expected(numbers.size());
    for (Count i = 0; i < largest_; ++i) {
      const auto index = static_cast<std::size_t>(i);
      numbers[index] = number_of(comm_.rank(), passes_, i);
      for (int rank = 0; rank < comm_.size(); ++rank)
        expected[index] += number_of(rank, passes_, i);
    }
    const Slice here = host_slice(std::span(numbers));
    const Slice there = sums_.slice(largest_, DType::f32);
    options_.device->copy(there, here);
    all_reduce(comm_, there);
    options_.device->copy(here, there);
    return std::inner_product(numbers.begin(), numbers.end(), expected.begin(), std::int64_t{0},
                              std::plus<>(), [](float a, float b) { return a == b ? 0 : 1; });
  }

  void add(const std::vector<std::string>& all, const std::vector<double>& all_reduces) {
    std::vector<std::vector<StepBits>> bits;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const OwnPass own = own_pass_of(all[rank]);
      for (const double time : own.products) run_.products[rank].add(time);
      for (const double time : own.copies) run_.copies[rank].add(time);
      if (own.wrong_sums > 0) run_.wrong_sums[rank].add(run_.passes, own.wrong_sums);
      bits.push_back(own.bits);
    }
    for (std::size_t size = 0; size < all_reduces.size(); ++size)
      run_.all_reduces[size].add(all_reduces[size]);
    for (const WrongStep& wrong : votes_.judge(bits, kinds_))
      run_.wrong_bits[wrong.kind][static_cast<std::size_t>(wrong.rank)].add(run_.passes);
    run_.steps_compared = votes_.compared();
    run_.seconds = seconds();
    ++run_.passes;
  }

  RankContext& context_;
  Communicator& comm_;
  const BurnInOptions& options_;
  const LaunchOptions& world_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  ProductTest product_;
  CopyTest copy_;
  const Count largest_;
  Memory sums_;
  std::int64_t passes_ = 0;
  // On rank 0:
  BurnInRun run_;
  std::vector<int> kinds_;
  ReplayVotes votes_;
  struct KnownLink {
    MeasuredLink link = {};
    std::array<Series, link_tests> samples = {};
    std::int64_t measured = 0;  // in this pass for the last time
  };
  std::map<RankPair, KnownLink> links_;
};

}  // namespace

void check(const BurnInOptions& options, int ranks) {
  require(options.minutes > 0 && std::isfinite(options.minutes),
          fmt::format("--minutes {}", options.minutes), "use a time above 0");
  require(options.passes >= 0, fmt::format("--passes {}", options.passes), "use 1 or more");
  const auto& flipped = options.flipped;
  require(!flipped || flipped->rank < ranks,
          fmt::format("--fault: rank {} of a world of {}", flipped ? flipped->rank : 0, ranks),
          fmt::format("ranks are 0 to {}", ranks - 1));
  for (const Count bytes : options.all_reduce_bytes)
    require(
        bytes > 0 && bytes % element_bytes(DType::f32) == 0 && bytes <= most_all_reduced,
        fmt::format("--sizes {}", bytes),
        fmt::format("use multiples of {} up to {}", element_bytes(DType::f32), most_all_reduced));
  const auto [cores, gpus, memory] = options.expected;
  for (const auto& [flag, count] : {std::pair("--expect-cores", cores), {"--expect-gpus", gpus}})
    require(!count || *count > 0, fmt::format("{} {}", flag, count.value_or(0)), "use 1 or more");
  require(!memory || *memory > 0, "--expect-memory 0", "use 1 or more bytes");
  if (ranks > 1) check(options.pairs, ranks);
}

void burn_in(RankContext& context, const BurnInOptions& given, const LaunchOptions& world,
             const std::function<void(const BurnInRun&)>& after_pass) {
  BurnInOptions options = given;
  // Each rank may have a GPU of its own.
  if (Device* const own = context.ledger.device()) options.device = options.pairs.device = own;
  PassesOfRank passes(context, options, world);
  while (passes.is_due()) {
    const BurnInRun& run = passes.take();
    if (context.world.rank() == 0) after_pass(run);
  }
}

}  // namespace lockstep
