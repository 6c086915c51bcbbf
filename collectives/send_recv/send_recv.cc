#include "collectives/send_recv/send_recv.h"

#include "collectives/vendor.h"

namespace lockstep {

const std::vector<SendRecvAlgorithm>& send_recv_algorithms() {
  static const std::vector<SendRecvAlgorithm> algorithms = {
      send_recv_shift(), vendor_algorithm<Operation::send_recv, Slice>()};
  return algorithms;
}

void send_recv(Communicator& comm, Slice out, Slice in, std::string_view algorithm) {
  require(
      out.count == in.count && out.dtype == in.dtype,
      [&] {
        return fmt::format("send_recv of {} {} into {} {}", in.count, name_of(in.dtype), out.count,
                           name_of(out.dtype));
      },
      "use slices of one type and count");
  const auto& chosen =
      usable_algorithm(send_recv_algorithms(), Operation::send_recv, algorithm, comm, in);
  const CollectiveCall call(comm, Operation::send_recv, chosen.name, in);
  chosen.run(comm, out, in);
}

}  // namespace lockstep
