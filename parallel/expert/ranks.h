// The ranks that divide the experts of every layer, and the exchanges between them. Each rank has
// tokens of its own. It sends their rows to the ranks that have the chosen experts (dispatch), and gets
// back what these have made of them (combine). Lepikhin et al., "GShard", 2020.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "collectives/turns.h"
#include "models/layers/meanwhile.h"
#include "models/tensor.h"
#include "parallel/expert/dispatcher.h"
#include "parallel/expert/parts.h"

namespace lockstep {

// Rows that this rank and each of those that split its experts have got.
std::vector<Count> rows_of_parts(const Routing& routing, const ExpertSplit& split);

class ExpertRanks {
 public:
  // Labels for the traffic.
  static constexpr const char* counts_label = "expert counts";
  static constexpr const char* dispatch_label = "dispatch forward";
  static constexpr const char* combine_label = "combine forward";
  static constexpr const char* combine_backward_label = "combine backward";
  static constexpr const char* dispatch_backward_label = "dispatch backward";
  static constexpr const char* split_forward_label = "split experts forward";
  static constexpr const char* split_backward_label = "split experts backward";
  // Those of both exchanges of a dispatch or a combine.
  struct Labels {
    const char *between_experts, *of_split_experts;
  };
  // If weights travel.
  static constexpr const char* choices_label = "router choices";
  static constexpr const char* weights_label = "router weights forward";
  static constexpr const char* weights_backward_label = "router weights backward";

  // What runs while rows travel: shared experts during a dispatch; and the other one of two passes, if
  // there are turns.
  struct Overlap {
    bool shared_experts = false;
    Turns* turns = nullptr;
  };
  // Rows travel as the method says. Memory for rows on their way is charged to `ledger` as
  // communication. `tensor` are the ranks that split each expert, if any do. All ranks of `comm` create
  // it at the same time.
  ExpertRanks(Communicator& comm, Communicator& tensor, const ExpertSplit& split,
              const ExpertConfig& experts, std::string_view method, Overlap overlap,
              Ledger& ledger);
  // One rank without the others, for tensors without storage: nothing is exchanged.
  ExpertRanks(const ExpertSplit& split, const ExpertConfig& experts, std::string_view method,
              Ledger& ledger)
      : group_{split, experts}, method_(dispatch_method(method)), parts_(split), ledger_(ledger) {}

  const ExpertSplit& split() const { return group_.split; }
  // Consecutive ones among these ranks; 0 if nodes differ.
  int ranks_per_node() const { return group_.ranks_per_node; }

  // Every rank learns how many rows it gets from each rank for each of its experts, and how many those
  // get that split these.
  void exchange_counts(Routing& routing);
  // And then for which of its experts each row is, and with which weights, numbers of this type.
  void exchange_weights(const SentRows& sent, DType type, Routing& routing);
  SentRows sent(const Routing& routing) const { return method_.sent(group_, routing); }
  Count experts_per_row() const { return method_.experts_per_row(group_); }
  // Rows that so many tokens send at most, and that arrive here and at the ranks that split this rank's
  // experts.
  Count most_sent(Count tokens) const { return method_.most_sent(group_, tokens); }
  Count most_received() const { return method_.most_received(group_); }
  // Rows of `columns` elements travel to the ranks that have their experts, or back. They lie as
  // dispatcher.h says.
  void dispatch(const char* label, Slice of_experts, Slice of_tokens, const Routing& routing,
                Count columns);
  void combine(const char* label, Slice of_tokens, Slice of_experts, const Routing& routing,
               Count columns);
  // Gradients of weights, experts_per_row() for each row, travel back.
  void combine_weights(Slice of_tokens, Slice of_experts, const Routing& routing);
  // Runs it during the next dispatch(), or returns it if nothing overlaps.
  Meanwhile run_during_dispatch(const Meanwhile& meanwhile);
  // Tells checks that rows of tokens will arrive here, before anything is written: all that will be
  // there at the end of a dispatch, because this rank itself may get none.
  void announce(Slice arriving, Slice leaving) const {
    if (comm_) comm_->announce(Operation::all_to_all_v, leaving, arriving);
  }
  ExpertParts& parts() { return parts_; }
  // Memory for [rows, columns], valid until the next call for the same use in the same turns: each of two
  // passes has memory of its own.
  enum class Use : std::uint8_t {
    leaving,
    by_rank,
    by_expert,
    dispatcher,
    dispatcher_too,
    weights_leaving,
    weights_by_rank,
    weights_by_expert,
    weights_of_biases,
    weights_dispatcher,
    weights_dispatcher_too
  };
  Slice scratch(Use use, Count rows, Count columns, DType dtype);

  // What others choose where they do not exist: sets what arrives and passes, and for which experts.
  // Without it, they send as many rows as this rank, for its first expert.
  using Others = std::function<void(const ExpertGroup& group, Routing& routing)>;
  void assume(Others others) { others_ = std::move(others); }

  // The rows of each dispatch since begin_step(), in training and the first time only. skip_step() goes
  // back to those of the step before.
  void begin_step() { before_ = std::exchange(dispatched_, {}); }
  void skip_step() { dispatched_ = std::move(before_); }
  // `computed`: by this rank's experts.
  void record(DispatchedRows rows, Count computed) {
    dispatched_.push_back(std::move(rows));
    computed_ += computed;
  }
  const std::vector<DispatchedRows>& dispatched() const { return dispatched_; }
  // Rows that this rank's experts have computed so far in training; none if every rank has all experts.
  std::optional<Count> computed() const {
    return group_.split.is_divided() ? std::optional(computed_) : std::nullopt;
  }
  double waiting_seconds() const {
    return (waiting_ ? waiting_->seconds() : 0) + parts_.waiting_seconds();
  }

 private:
  std::array<Slice, 2> dispatcher_scratch(Use first, Use second, Slice like, Count columns);
  // Runs dispatch() or combine() of a dispatcher, and meanwhile what overlaps.
  using Way = void (TokenDispatcher::*)(const RowExchange&);
  void travel(Way way, const RowExchange& rows);
  // Numbers on the host, experts_per_row() for each row. `arriving` are those of all parts.
  template <typename T>
  void exchange_numbers(const char* label, std::vector<T>& arriving, std::vector<T> leaving,
                        const Routing& routing);
  template <typename T>
  std::vector<double> exchanged_weights(const std::vector<double>& leaving, const Routing& routing);
  Range own_rows(const Routing& routing) const;
  // The experts of rows for one choice each, from the counts.
  void list_arriving_choices(Routing& routing) const;
  // Whether the other ranks do not exist.
  bool is_alone() const { return !comm_ || !comm_->has_peers(); }
  // Does nothing without the others.
  template <typename Exchange>
  void wait(Exchange exchange);

  Communicator* comm_ = nullptr;
  ExpertGroup group_;
  const DispatchMethod& method_;
  ExpertParts parts_;
  Others others_;
  Overlap overlap_;
  std::array<std::array<Tensor, 11>, 2> scratch_;  // by the work that has its turn
  std::unique_ptr<TokenDispatcher> dispatcher_;    // null without others
  std::optional<Stream> stream_;                   // ends before the memory that it uses
  std::unique_ptr<TokenDispatcher> overlapped_;    // on the stream
  Meanwhile meanwhile_;
  Ledger& ledger_;
  std::optional<Stopwatch> waiting_;
  std::vector<DispatchedRows> dispatched_, before_;
  Count computed_ = 0;
};

}  // namespace lockstep
