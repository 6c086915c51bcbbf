#include "parallel/expert/dispatcher.h"

#include <fmt/format.h>

namespace lockstep {

const std::vector<DispatchMethod>& dispatch_methods() {
  static const std::vector<DispatchMethod> methods = {all_to_all_dispatch(), two_level_dispatch(),
                                                      padded_dispatch()};
  return methods;
}

const DispatchMethod& dispatch_method(std::string_view name) {
  std::string known;
  for (const DispatchMethod& method : dispatch_methods()) {
    if (method.name == name) return method;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name);
  }
  throw Error(ErrorKind::bad_input, fmt::format("no token dispatcher '{}'", name),
              {.hint = fmt::format("choose one of {}", known)});
}

DispatchedRows dispatched_rows(const Routing& routing, int ranks) {
  DispatchedRows rows{.sent = std::vector<Count>(static_cast<std::size_t>(ranks)),
                      .received = {},
                      .passing = routing.passing};
  rows.received = rows.sent;
  const std::size_t own = routing.counts.size() / rows.sent.size();
  for (std::size_t i = 0; i < routing.counts.size(); ++i) {
    rows.sent[i / own] += routing.counts[i];
    rows.received[i / own] += routing.arriving[i];
  }
  return rows;
}

std::vector<Count> in_elements(std::vector<Count> counts, Count columns) {
  for (Count& count : counts) count *= columns;
  return counts;
}

void exchange_parts(Communicator& comm, const RingOrder& ranks, const UnevenChunks& into,
                    const UnevenChunks& from) {
  comm.copy(into[ranks.rank], from[ranks.rank]);
  for (int distance = 1; distance < ranks.size; ++distance) {
    const int to = (ranks.rank + distance) % ranks.size,
              source = (ranks.rank - distance + ranks.size) % ranks.size;
    comm.send_recv(from[to], ranks.at(to), into[source], ranks.at(source));
  }
}

}  // namespace lockstep
