#include "collectives/operations/operations.h"

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_to_all/all_to_all.h"
#include "collectives/all_to_all_v/all_to_all_v.h"
#include "collectives/barrier/barrier.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/gather/gather.h"
#include "collectives/reduce/reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "collectives/scatter/scatter.h"
#include "collectives/send_recv/send_recv.h"

namespace lockstep {
namespace {

// The entries of a typed table, run by `call(comm, data, arguments, name)`.
template <typename Entry, typename Call>
std::vector<AnyAlgorithm> erased(const std::vector<Entry>& table, Call call) {
  std::vector<AnyAlgorithm> any;
  for (const Entry& entry : table)
    any.push_back({.name = std::string(entry.name),
                   .run = [call, name = entry.name](
                              Communicator& comm, Slice data,
                              const Arguments& arguments) { call(comm, data, arguments, name); },
                   .traffic = entry.traffic,
                   .seconds = entry.seconds,
                   .formula = entry.formula,
                   .exact = entry.exact,
                   .exact_on_nodes = entry.exact_on_nodes,
                   .need = entry.need,
                   .scratch = entry.scratch,
                   .windowed = entry.windowed,
                   .ranks_are_equal = entry.ranks_are_equal,
                   .is_baseline = entry.is_baseline});
  return any;
}

void call_all_to_all_v(Communicator& comm, Slice data, const Arguments& a, std::string_view name) {
  if (!a.counts.in.empty()) return all_to_all_v(comm, a.out, data, a.counts, name);
  const std::vector<Count> equal(static_cast<std::size_t>(comm.size()), data.count / comm.size());
  all_to_all_v(comm, a.out, data, {.in = equal, .out = equal}, name);
}

std::vector<OperationEntry> make_operations() {
  using C = Communicator;
  using A = const Arguments&;
  using Name = std::string_view;
  return {
      {Operation::all_reduce, name_of(Operation::all_reduce),
       "every rank ends with the combination of all ranks' data", true, false, true, true,
       erased(all_reduce_algorithms(),
              [](C& comm, Slice data, A a, Name name) {
                if (a.out.device)
                  all_reduce(comm, a.out, data, a.op, name);
                else
                  all_reduce(comm, data, a.op, name);
              })},
      {Operation::reduce_scatter, name_of(Operation::reduce_scatter),
       "every rank ends with its chunk of the combination", true, false, true, false,
       erased(reduce_scatter_algorithms(),
              [](C& comm, Slice data, A a, Name name) { reduce_scatter(comm, data, a.op, name); })},
      {Operation::all_gather, name_of(Operation::all_gather),
       "every rank ends with all ranks' chunks", false, false, true, false,
       erased(all_gather_algorithms(),
              [](C& comm, Slice data, A, Name name) { all_gather(comm, data, name); })},
      {Operation::broadcast, name_of(Operation::broadcast), "every rank ends with the root's data",
       false, true, true, false,
       erased(broadcast_algorithms(),
              [](C& comm, Slice data, A a, Name name) { broadcast(comm, data, a.root, name); })},
      {Operation::reduce, name_of(Operation::reduce),
       "the root ends with the combination of all ranks' data", true, true, true, false,
       erased(reduce_algorithms(),
              [](C& comm, Slice data, A a, Name name) { reduce(comm, data, a.op, a.root, name); })},
      {Operation::gather, name_of(Operation::gather), "the root ends with all ranks' chunks", false,
       true, true, false,
       erased(gather_algorithms(),
              [](C& comm, Slice data, A a, Name name) { gather(comm, data, a.root, name); })},
      {Operation::scatter, name_of(Operation::scatter),
       "every rank ends with its chunk of the root's data", false, true, true, false,
       erased(scatter_algorithms(),
              [](C& comm, Slice data, A a, Name name) { scatter(comm, data, a.root, name); })},
      {Operation::all_to_all, name_of(Operation::all_to_all),
       "every rank has a chunk for every other", false, false, false, true,
       erased(all_to_all_algorithms(),
              [](C& comm, Slice data, A a, Name name) { all_to_all(comm, a.out, data, name); })},
      {Operation::all_to_all_v, name_of(Operation::all_to_all_v),
       "every rank has a chunk for every other, of any size", false, false, false, true,
       erased(all_to_all_v_algorithms(), call_all_to_all_v)},
      {Operation::send_recv, name_of(Operation::send_recv),
       "every rank sends to the right and receives from the left", false, false, false, true,
       erased(send_recv_algorithms(),
              [](C& comm, Slice data, A a, Name name) { send_recv(comm, a.out, data, name); })},
      {Operation::barrier, name_of(Operation::barrier), "no rank leaves before every rank has come",
       false, false, true, false,
       erased(barrier_algorithms(), [](C& comm, Slice, A, Name name) { barrier(comm, name); })},
  };
}

}  // namespace

const std::vector<OperationEntry>& operations() {
  static const std::vector<OperationEntry> all = make_operations();
  return all;
}

const OperationEntry& find_operation(std::string_view name) {
  std::string known;
  for (const OperationEntry& entry : operations()) {
    if (name_of(entry.operation) == name) return entry;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(entry.operation));
  }
  throw Error(ErrorKind::bad_input, fmt::format("no operation '{}'", name),
              {.hint = fmt::format("choose one of {}", known)});
}

}  // namespace lockstep
