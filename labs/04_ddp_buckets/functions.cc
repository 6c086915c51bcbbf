// Names the functions of this lab for the grader, and simulates the steps of a training.
#include "labs/functions.h"

#include <bucket.cc>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

// The numbers of a problem after the ranks.
struct Training {
  std::int64_t parameters, largest, first_bytes, bytes, is_f64, steps, has_given_buckets, only_sums,
      seed;
};

std::int64_t random_from(std::mt19937_64& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution(least, most)(random);
}

template <typename Numbers>
std::string list(const std::string& name, const Numbers& numbers) {
  std::string text = name + ":";
  for (const auto number : numbers) text += " " + std::to_string(number);
  return text + "\n";
}

std::string text_of(const std::vector<Bucket>& buckets) {
  std::vector<Count> first, last, offset, count;
  for (const Bucket& bucket : buckets) {
    first.push_back(bucket.first), last.push_back(bucket.last);
    offset.push_back(bucket.offset), count.push_back(bucket.count);
  }
  return list("buckets", std::vector{buckets.size()}) + list("first", first) + list("last", last) +
         list("offset", offset) + list("count", count);
}

// Buckets of one to three parameters, whatever their bytes: for tests of the queue alone.
std::vector<Bucket> given_buckets(const Parameters& parameters, std::mt19937_64& random) {
  std::vector<Bucket> buckets;
  for (int last = static_cast<int>(parameters.list().size()) - 1; last >= 0;) {
    const int first = std::max(0, last - static_cast<int>(random_from(random, 0, 2)));
    const Parameter &begin = parameters.list()[first], &end = parameters.list()[last];
    buckets.push_back({.first = first,
                       .last = last,
                       .offset = begin.offset,
                       .count = end.offset + end.count - begin.offset});
    last = first - 1;
  }
  return buckets;
}

// So that a queue can be made of them, and that they can be sent.
void check(const std::vector<Bucket>& buckets, const Parameters& parameters) {
  std::vector<int> times(parameters.list().size());
  for (const Bucket& bucket : buckets) {
    require(0 <= bucket.offset && 0 <= bucket.count &&
                bucket.count <= parameters.count() - bucket.offset,
            "make_buckets() returns a bucket that leaves the buffer of gradients");
    for (int i = std::max(0, bucket.first); i <= bucket.last && i < std::ssize(times); ++i)
      ++times[i];
    require(0 <= bucket.first && bucket.last < std::ssize(times),
            "make_buckets() returns a bucket with a parameter that does not exist");
  }
  for (std::size_t i = 0; i < times.size(); ++i)
    require(times[i] == 1, "make_buckets() puts parameter " + std::to_string(i) + " into " +
                               std::to_string(times[i]) + " buckets");
}

template <typename T>
void fill(Slice gradient, std::mt19937_64& random) {
  // Sums over ranks are exact in f32, too.
  constexpr std::int64_t most = 1000;
  for (T& each : host_span<T>(gradient)) each = static_cast<T>(random_from(random, -most, most));
}

// All gradients, which are whole numbers.
template <typename T>
std::string sums_of(const Parameters& parameters) {
  std::vector<std::int64_t> numbers;
  for (const T each : host_span<T>(parameters.gradients()))
    numbers.push_back(static_cast<std::int64_t>(each));
  return list("sums", numbers);
}

// Gradients become ready in reverse in the first step, afterwards in another order in each step.
template <typename T>
std::string train(Communicator& comm, const Training& training, Parameters& parameters,
                  BucketQueue& queue, std::mt19937_64& random) {
  const std::size_t buckets = queue.buckets().size();
  std::mt19937_64 values(static_cast<std::uint64_t>(training.seed * 100 + comm.rank()));
  parameters.allocate();
  std::vector<int> order(parameters.list().size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::string text;
  for (std::int64_t step = 0; step < training.steps; ++step) {
    if (step > 0) std::ranges::shuffle(order, random);
    std::vector<std::size_t> sends, after;
    parameters.zero_gradients();
    queue.begin();
    for (std::size_t i = 0; i < order.size(); ++i) {
      fill<T>(parameters.gradient(order[i]), values);
      for (const std::size_t number : queue.ready(order[i])) {
        require(number < buckets, "ready() returns bucket " + std::to_string(number) + " of " +
                                      std::to_string(buckets));
        const Bucket& bucket = queue.buckets()[number];
        all_reduce(comm, parameters.gradients().part(bucket.offset, bucket.count));
        sends.push_back(number), after.push_back(i + 1);
      }
    }
    queue.rebuild();
    const std::string name = "step_" + std::to_string(step);
    if (!training.only_sums)
      text += list(name + "_sends", std::vector{sends.size()}) + list(name + "_order", sends) +
              list(name + "_after", after);
    text += sums_of<T>(parameters);
  }
  return text;
}

// problem: ranks, parameters, most elements of a parameter, limits of the first and the other
// buckets, whether elements are f64, steps, whether buckets are given, whether only sums are asked
// for, seed. Without steps, only the buckets are asked for.
std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  const Training training{.parameters = problem[1],
                          .largest = problem[2],
                          .first_bytes = problem[3],
                          .bytes = problem[4],
                          .is_f64 = problem[5],
                          .steps = problem[6],
                          .has_given_buckets = problem[7],
                          .only_sums = problem[8],
                          .seed = problem[9]};
  std::mt19937_64 random(static_cast<std::uint64_t>(training.seed));
  Ledger ledger;
  Parameters parameters(training.is_f64 ? DType::f64 : DType::f32, ledger);
  for (std::int64_t i = 0; i < training.parameters; ++i)
    parameters.add(
        {.name = "p" + std::to_string(i), .shape = {random_from(random, 1, training.largest)}});
  const std::vector<Bucket> buckets =
      training.has_given_buckets ? given_buckets(parameters, random)
                                 : make_buckets(parameters, training.first_bytes, training.bytes);
  std::string text;
  if (!training.has_given_buckets && !training.only_sums) text += text_of(buckets);
  if (training.steps == 0) return text;
  check(buckets, parameters);
  BucketQueue queue(parameters, buckets);
  return text + (training.is_f64 ? train<double>(comm, training, parameters, queue, random)
                                 : train<float>(comm, training, parameters, queue, random));
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  return functions;
}
