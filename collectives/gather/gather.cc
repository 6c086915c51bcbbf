#include "collectives/gather/gather.h"

#include <cstdint>

#include "collectives/vendor.h"

namespace lockstep {
namespace {

Slice bytes_of(std::string& text) {
  return host_slice(std::span(reinterpret_cast<std::uint8_t*>(text.data()), text.size()));
}

}  // namespace

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

// Each rank sends its text's length, then the text, and waits for an answer: one that went on, and
// perhaps ended, would be missed by ranks that still wait for it. No rank but the root learns of other
// lengths: of 16,384 ranks, each would hold as many, and a ring would take 268 million messages.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text, int root) {
  const Slice nothing{.dtype = DType::u8, .device = &host_device()};
  const CollectiveCall call(comm, Operation::gather, "text", nothing, ReduceOp::sum, root);
  std::int64_t length = std::ssize(text);
  std::uint8_t all_there = 1;
  const Slice answer = host_slice(std::span(&all_there, 1));
  std::string own = text;
  if (comm.rank() != root) {
    comm.send(host_slice(std::span(&length, 1)), root);
    comm.send(bytes_of(own), root);
    comm.recv(answer, root);
    return {};
  }
  std::vector<std::string> texts(static_cast<std::size_t>(comm.size()));
  for (int from = 0; from < comm.size(); ++from) {
    std::string& arriving = texts[static_cast<std::size_t>(from)];
    if (from == root) {
      arriving = std::move(own);
      continue;
    }
    comm.recv(host_slice(std::span(&length, 1)), from);
    arriving.resize(static_cast<std::size_t>(length));
    comm.recv(bytes_of(arriving), from);
  }
  for (int to = 0; to < comm.size(); ++to)
    if (to != root) comm.send(answer, to);
  return texts;
}

}  // namespace lockstep
