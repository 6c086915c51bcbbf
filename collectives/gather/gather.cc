#include "collectives/gather/gather.h"

#include "collectives/vendor.h"

#include <algorithm>
#include <memory>

#include "collectives/all_gather/all_gather.h"

namespace lockstep {

const std::vector<GatherAlgorithm>& gather_algorithms() {
  static const std::vector<GatherAlgorithm> algorithms = {
      gather_linear(), gather_binomial_tree(), vendor_algorithm<Operation::gather, int>()};
  return algorithms;
}

void gather(Communicator& comm, Slice data, int root, std::string_view algorithm) {
  const auto& chosen =
      usable_algorithm(gather_algorithms(), Operation::gather, algorithm, comm, data);
  const CollectiveCall call(comm, Operation::gather, chosen.name, data, ReduceOp::sum, root);
  chosen.run(comm, data, root);
}

std::vector<std::string> gather_text(Communicator& comm, const std::string& text, int root) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(comm.size()));
  lengths[comm.rank()] = std::ssize(text);
  all_gather(comm, host_slice(std::span(lengths)));

  // Pads all texts to the longest, so that every rank's part has the same size. The system gives
  // memory only for the parts that a rank writes: for all of them that would be too much.
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(lengths));
  const auto bytes = std::make_unique_for_overwrite<std::uint8_t[]>(longest * lengths.size());
  const auto part = [&](int rank) {
    return bytes.get() + longest * static_cast<std::size_t>(rank);
  };
  std::fill_n(std::ranges::copy(text, part(comm.rank())).out, longest - text.size(),
              std::uint8_t{});
  gather(comm, host_slice(std::span(bytes.get(), longest * lengths.size())), root);

  std::vector<std::string> texts;
  if (comm.rank() != root) return texts;
  for (int rank = 0; rank < comm.size(); ++rank)
    texts.emplace_back(part(rank), part(rank) + lengths[static_cast<std::size_t>(rank)]);
  return texts;
}

}  // namespace lockstep
