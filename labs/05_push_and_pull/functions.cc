// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <server.cc>
#include <worker.cc>

#include <algorithm>
#include <random>
#include <vector>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;
using Values = std::vector<std::int64_t>;

Values random_values(Count count, std::int64_t seed) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  std::uniform_int_distribution<std::int64_t> value(-1'000'000, 1'000'000);
  Values values(static_cast<std::size_t>(count));
  for (std::int64_t& each : values) each = value(random);
  return values;
}

std::string text_of(const char* name, Slice values) {
  return numbers(name, host_span<const std::int64_t>(values));
}

// problem: ranks, servers, whether every rank is both, elements, steps, seed. A server's step adds
// the sum of the gradients to its parameters.
std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  const bool colocated = problem[2] != 0;
  const Roles roles{.ranks = comm.size(),
                    .servers = colocated ? comm.size() : static_cast<int>(problem[1]),
                    .colocated = colocated};
  const Count count = problem[3];
  Values parameters = random_values(count, 0), gradients(static_cast<std::size_t>(count));
  const Slice all_parameters = host_slice(std::span(parameters)),
              all_gradients = host_slice(std::span(gradients));
  Worker worker(comm, roles);
  const bool is_server = roles.is_server(comm.rank());
  const int number = is_server ? roles.server_of_rank(comm.rank()) : 0;
  const Slice own_parameters = Chunks(all_parameters, roles.servers)[number],
              own_gradients = Chunks(all_gradients, roles.servers)[number];
  Server server(comm, roles, own_parameters, own_gradients);
  std::string text;
  for (std::int64_t step = 0; step < problem[4]; ++step) {
    // A server that is no worker has what the step before has left.
    if (roles.is_worker(comm.rank())) {
      std::ranges::copy(random_values(count, (problem[5] * 100 + step) * 100 + comm.rank()),
                        gradients.begin());
      worker.push(all_gradients);
    }
    if (is_server) {
      server.collect();
      text += text_of("sums:", own_gradients);
      host_device().reduce(own_parameters, own_gradients, ReduceOp::sum);
      server.reply();
    }
    if (roles.is_worker(comm.rank())) worker.pull(all_parameters);
    server.finish();
  }
  return text +
         text_of("parameters:", roles.is_worker(comm.rank()) ? all_parameters : own_parameters);
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  return functions;
}
