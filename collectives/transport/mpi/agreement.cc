#include "collectives/transport/mpi/agreement.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <numeric>
#include <vector>

#include "collectives/base/printable.h"
#include "collectives/transport/mpi/members.h"

namespace lockstep {
namespace {

constexpr const char* what = "compare what the ranks will do";

// On rank 0, the texts of all ranks; elsewhere nothing.
std::vector<std::string> gathered(MPI_Comm comm, const std::string& own) {
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths(static_cast<std::size_t>(size)), begins(lengths.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Igather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, comm, &request), what);
  await_mpi(request, what);
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), '\0');
  check_mpi(MPI_Igatherv(own.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(),
                         MPI_CHAR, 0, comm, &request),
            what);
  await_mpi(request, what);
  std::vector<std::string> texts;
  for (std::size_t i = 0; rank == 0 && i < lengths.size(); ++i)
    texts.push_back(
        all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
  return texts;
}

std::string difference_of(MPI_Comm comm, const Joining& joining) {
  const std::vector<std::string> reasons = gathered(comm, joining.refusal);
  const std::vector<std::string> texts = gathered(comm, packed(joining.claims));
  if (std::string refused = refusals(reasons); !refused.empty()) return refused;
  std::vector<Claims> claims;
  for (const std::string& text : texts) claims.push_back(unpacked(text));
  return fmt::format("the ranks disagree: {}; start all of them alike", disagreement(claims));
}

}  // namespace

void require_agreement(MPI_Comm comm, const Joining& joining) {
  const std::uint64_t own = digest(joining.claims);
  // The largest digest and the complement of the smallest one.
  std::array<std::uint64_t, 3> most{own, ~own, joining.refusal.empty() ? 0U : 1U};
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, most.data(), static_cast<int>(most.size()), MPI_UINT64_T,
                           MPI_MAX, comm, &request),
            what);
  await_mpi(request, what);
  if (most[0] == ~most[1] && most[2] == 0) return;
  const std::string difference = difference_of(comm, joining);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) fmt::print(stderr, "lockstep: {}\n", printable(difference, /*keeps_lines=*/true));
  // A launcher ends all processes when the first one ends with a failure: only once rank 0 has spoken.
  check_mpi(MPI_Ibarrier(comm, &request), what);
  await_mpi(request, what);
  MPI_Finalize();
  throw Error(ErrorKind::bad_input, "");
}

}  // namespace lockstep
