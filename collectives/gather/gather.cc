#include "collectives/gather/gather.h"

#include "collectives/vendor.h"

#include <algorithm>

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

  // Pads all texts to the longest, so that every rank's part has the same size.
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(lengths));
  std::vector<std::uint8_t> bytes(longest * lengths.size());
  std::ranges::copy(text, bytes.begin() + static_cast<std::ptrdiff_t>(longest) * comm.rank());
  gather(comm, host_slice(std::span(bytes)), root);

  std::vector<std::string> texts;
  if (comm.rank() != root) return texts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i * longest);
    texts.emplace_back(begin, begin + lengths[i]);
  }
  return texts;
}

}  // namespace lockstep
