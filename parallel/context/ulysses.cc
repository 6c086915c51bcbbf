#include "parallel/context/ulysses.h"

namespace lockstep {
namespace {

// The part of a message that these matrices take, after `before` elements.
Matrices in_message(Slice message, Count before, const Matrices& matrices) {
  const auto& [first, number, distance] = matrices;
  const Count size = first.rows * first.columns;
  return {{message.part(before, size), first.rows, first.columns}, number, size};
}

}  // namespace

void Ulysses::exchange(Backend& backend, DType dtype, const Leaving& leaving,
                       const Arrivals& arriving) {
  const int ranks = split_.ranks, own = split_.rank;
  std::vector<Count> sent(static_cast<std::size_t>(ranks)), received = sent;
  Count all_sent = 0, all_received = 0;
  for (int p = 0; p < ranks; ++p) {
    if (p == own) continue;
    const auto i = static_cast<std::size_t>(p);
    for (const Matrices& matrices : leaving(p)) sent[i] += matrices.elements();
    for (const Arriving& part : arriving(p)) received[i] += part.matrices.elements();
    all_sent += sent[i];
    all_received += received[i];
  }
  auto& [out, in] = messages_[dtype];
  const Slice outgoing = exchange_.room(out, all_sent, dtype);
  const Slice incoming = exchange_.room(in, all_received, dtype);
  Count before = 0;
  for (int p = 0; p < ranks; ++p) {
    if (p == own) continue;
    for (const Matrices& matrices : leaving(p)) {
      backend.copy_each(in_message(outgoing, before, matrices), matrices, 0);
      before += matrices.elements();
    }
  }
  auto done = exchange_.start(label, [=, number = exchange_.next_number()](Communicator& comm) {
    std::vector<Request> requests;
    Count from = 0, to = 0;
    for (int p = 0; p < ranks; ++p) {
      if (p == own) continue;
      const auto i = static_cast<std::size_t>(p);
      requests.push_back(comm.irecv(incoming.part(from, received[i]), p, number));
      requests.push_back(comm.isend(outgoing.part(to, sent[i]), p, number));
      from += received[i];
      to += sent[i];
    }
    for (const Request& request : requests) request->wait();
  });
  exchange_.wait(done);
  before = 0;
  for (int p = 0; p < ranks; ++p) {
    const std::vector<Arriving> parts = arriving(p);
    const std::vector<Matrices> kept = p == own ? leaving(p) : std::vector<Matrices>();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Matrices& into = parts[i].matrices;
      backend.copy_each(into, p == own ? kept[i] : in_message(incoming, before, into),
                        parts[i].beta);
      if (p != own) before += into.elements();
    }
  }
}

Traffic heads_for_tokens(Count size, const HeadSplit& split, Count heads, Count kv_heads,
                         bool with_kv) {
  const auto of = [&](int rank) {
    const HeadShare share = HeadSplit{.ranks = split.ranks, .rank = rank}.share(heads, kv_heads);
    return size * (share.count + (with_kv ? 2 * share.kv_count : 0));
  };
  Traffic traffic;
  for (int p = 0; p < split.ranks; ++p)
    if (p != split.rank)
      traffic += Traffic{.sent_messages = 1,
                         .sent_elements = of(p),
                         .received_messages = 1,
                         .received_elements = of(split.rank)};
  return traffic;
}

Traffic tokens_for_heads(Count size, const HeadSplit& split, Count heads, Count kv_heads,
                         bool with_kv) {
  const Traffic other = heads_for_tokens(size, split, heads, kv_heads, with_kv);
  return {.sent_messages = other.received_messages,
          .sent_elements = other.received_elements,
          .received_messages = other.sent_messages,
          .received_elements = other.sent_elements};
}

}  // namespace lockstep
