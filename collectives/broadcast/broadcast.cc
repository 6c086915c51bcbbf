#include "collectives/broadcast/broadcast.h"

#include <span>

#include "collectives/vendor.h"

namespace lockstep {

const std::vector<BroadcastAlgorithm>& broadcast_algorithms() {
  static const std::vector<BroadcastAlgorithm> algorithms = {
      broadcast_binomial_tree(), broadcast_linear(), broadcast_chain(),
      broadcast_scatter_all_gather(), vendor_algorithm<Operation::broadcast, int>()};
  return algorithms;
}

void broadcast(Communicator& comm, Slice data, int root, std::string_view algorithm) {
  const auto& chosen =
      usable_algorithm(broadcast_algorithms(), Operation::broadcast, algorithm, comm, data);
  const CollectiveCall call(comm, Operation::broadcast, chosen.name, data, ReduceOp::sum, root);
  chosen.run(comm, data, root);
}

std::string broadcast_text(Communicator& comm, std::string text, int root) {
  std::int64_t bytes = std::ssize(text);
  broadcast(comm, host_slice(std::span(&bytes, 1)), root);
  std::vector<std::uint8_t> copy(text.begin(), text.end());
  copy.resize(static_cast<std::size_t>(bytes));
  broadcast(comm, host_slice(std::span(copy)), root);
  return {copy.begin(), copy.end()};
}

}  // namespace lockstep
