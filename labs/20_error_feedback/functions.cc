// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <two_phase.cc>

#include <cmath>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/checksum.h"
#include "collectives/base/device.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;
using Values = std::vector<double>;

enum class Asked : std::int64_t { results, kept, left, same, everything };

// Larger buckets answer with a few of their elements.
constexpr Count most_printed = 5000, samples = 50;

// Some steps of a few buckets. problem: ranks, elements of the last bucket, codec, whether there is
// error feedback, steps, buckets, what is asked, seed.
class LabExchange {
 public:
  LabExchange(int ranks, std::span<const std::int64_t> problem)
      : ranks_(ranks),
        codec_(problem[2] == 0 ? "onebit" : "int8"),
        has_feedback_(problem[3] != 0),
        steps_(static_cast<int>(problem[4])),
        asked_(static_cast<Asked>(problem[6])),
        seed_(static_cast<std::uint64_t>(problem[7]) * 1'000'003) {
    buckets_.resize(static_cast<std::size_t>(problem[5]));
    Count elements = problem[1] + problem[5];
    for (ExchangedBucket& bucket : buckets_) bucket.range.count = --elements;
  }

  std::string answer(Communicator& comm) const {
    TwoPhase<double> exchange(codec_, has_feedback_, buckets_, comm, host_device());
    std::vector<Values> results;  // by step, then by bucket
    std::string text;
    for (int step = 0; step < steps_; ++step)
      for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        Values gradients = gradients_of(comm.rank(), step, bucket);
        exchange.run(comm, bucket, host_slice(std::span(gradients)));
        if (is_asked(Asked::results)) text += line("results:", gradients);
        results.push_back(std::move(gradients));
      }
    for (std::size_t bucket = 0; has_feedback_ && bucket < buckets_.size(); ++bucket) {
      const CompressedSum::Kept kept = exchange.kept(bucket);
      if (is_asked(Asked::kept))
        text += numbers("own:", host_span<const double>(kept.own)) +
                numbers("chunk:", host_span<const double>(kept.chunk));
      if (is_asked(Asked::left)) text += line("left:", left(comm, bucket, results, kept));
    }
    if (is_asked(Asked::same)) text += same(comm, results);
    return text;
  }

  std::string causes(int rank) const {
    std::string text;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (int step = 0; step < steps_; ++step) {
        const Values own = gradients_of(rank, step, bucket);
        Values sum(own.size());
        for (int from = 0; from < ranks_; ++from) add(sum, gradients_of(from, step, bucket), 1);
        text += cause_of("results:", "they are the gradients of this rank alone", own) +
                cause_of("results:", "they are exact sums: nothing has been encoded", sum);
      }
      text += cause_of("own:", "this is what the rank has sent, and not what rounding took away",
                       first_sent(rank, bucket));
    }
    return text;
  }

 private:
  bool is_asked(Asked what) const { return asked_ == what || asked_ == Asked::everything; }

  // From -1 to 1.
  Values gradients_of(int rank, int step, std::size_t bucket) const {
    Values values(static_cast<std::size_t>(buckets_[bucket].range.count));
    std::uint64_t place =
        seed_ + ((static_cast<std::uint64_t>(rank) * 100 + static_cast<std::uint64_t>(step)) * 100 +
                 bucket) *
                    1'000'000'007;
    for (double& value : values) {
      std::uint64_t mixed = ++place * 0x9e3779b97f4a7c15;
      mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
      mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
      value = std::ldexp(static_cast<double>(mixed >> 11), -52) - 1;
    }
    return values;
  }
  static void add(Values& into, std::span<const double> from, double factor) {
    for (std::size_t i = 0; i < from.size(); ++i) into[i] += factor * from[i];
  }

  static std::size_t stride(std::size_t count) {
    return count > most_printed ? count / samples : 1;
  }
  static std::string line(const char* name, const Values& values) {
    return numbers(name, std::span<const double>(values), stride(values.size()));
  }
  static std::string cause_of(const char* name, const char* words, const Values& values) {
    return cause(name, words, std::span<const double>(values), stride(values.size()));
  }

  // What is in no result and is not kept either: nothing but the rounding of sums.
  Values left(Communicator& comm, std::size_t bucket, const std::vector<Values>& results,
              const CompressedSum::Kept& kept) const {
    constexpr double rounding = 1e-9;
    const Count count = buckets_[bucket].range.count;
    Values all_kept(static_cast<std::size_t>(count));
    add(all_kept, host_span<const double>(kept.own), 1);
    const Range chunk = TwoPhaseChunks(count, ranks_)[comm.rank()];
    const std::span<const double> of_chunk = host_span<const double>(kept.chunk);
    for (std::size_t i = 0; i < of_chunk.size(); ++i)
      all_kept[static_cast<std::size_t>(chunk.first) + i] += of_chunk[i];
    all_reduce(comm, host_slice(std::span(all_kept)));
    Values left(all_kept.size());
    add(left, all_kept, -1);
    for (int step = 0; step < steps_; ++step) {
      add(left, results[static_cast<std::size_t>(step) * buckets_.size() + bucket], -1);
      for (int rank = 0; rank < ranks_; ++rank) add(left, gradients_of(rank, step, bucket), 1);
    }
    for (double& each : left)
      if (std::abs(each) < rounding) each = 0;
    return left;
  }

  // For each rank, whether its results have the bits of this one's.
  static std::string same(Communicator& comm, const std::vector<Values>& results) {
    Checksum own;
    for (const Values& values : results)
      own.add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
    std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
    const auto rank = static_cast<std::size_t>(comm.rank());
    all[rank] = static_cast<std::int64_t>(own.value());
    all_gather(comm, host_slice(std::span(all)));
    const std::int64_t mine = all[rank];
    for (std::int64_t& each : all) each = each == mine ? 1 : 0;
    return numbers("same:", std::span<const std::int64_t>(all));
  }

  // What a rank's first message says about all of its gradients.
  Values first_sent(int rank, std::size_t bucket) const {
    const Values x = gradients_of(rank, 0, bucket);
    Values sent(x.size());
    const auto codec = make_codec<double>(codec_);
    const double scale = codec->scale(x);
    const TwoPhaseChunks chunks(buckets_[bucket].range.count, ranks_);
    std::vector<std::byte> bytes(static_cast<std::size_t>(codec->bytes(chunks.each)));
    for (int to = 0; to < ranks_; ++to) {
      const auto first = static_cast<std::size_t>(chunks[to].first),
                 count = static_cast<std::size_t>(chunks[to].count);
      codec->encode(std::span(x).subspan(first, count), scale, bytes.data());
      codec->decode(bytes.data(), std::span(sent).subspan(first, count));
    }
    return sent;
  }

  int ranks_;
  const char* codec_;
  bool has_feedback_;
  int steps_;
  Asked asked_;
  std::uint64_t seed_;
  std::vector<ExchangedBucket> buckets_;
};

std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  poison_host_memory(true);
  return LabExchange(comm.size(), problem).answer(comm);
}

std::string causes(int rank, int ranks, std::span<const std::int64_t> problem) {
  return LabExchange(ranks, problem).causes(rank);
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  functions.causes = causes;
  return functions;
}
