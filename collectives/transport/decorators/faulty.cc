#include "collectives/transport/decorators/faulty.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr std::pair<std::string_view, FaultKind> kinds[] = {
    {"throw", FaultKind::throws}, {"delay", FaultKind::delays}, {"hang", FaultKind::hangs},
    {"kill", FaultKind::kills},   {"stop", FaultKind::stops},   {"exit", FaultKind::exits},
    {"leave", FaultKind::leaves}, {"skip", FaultKind::skips},   {"count", FaultKind::count},
    {"dtype", FaultKind::dtype},  {"op", FaultKind::op},        {"root", FaultKind::root},
    {"order", FaultKind::order},  {"nan", FaultKind::nan},
};

FaultKind kind_from_name(std::string_view name) {
  std::string known;
  for (const auto& [known_name, kind] : kinds) {
    if (known_name == name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", known_name);
  }
  require(false, fmt::format("--fault: unknown kind '{}'", name),
          fmt::format("choose one of {}", known));
  return FaultKind::throws;
}

std::int64_t number(std::string_view key, std::string_view text) {
  std::int64_t value = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(code == std::errc{} && end == text.data() + text.size() && value >= 0,
          fmt::format("--fault: {}='{}' is not a number >= 0", key, text));
  return value;
}

// Announces a different operation from the one that the rank runs, like a program with a bug.
Call spoiled(Call call, FaultKind kind) {
  Signature& s = call.signature;
  if (kind == FaultKind::count) ++s.count;
  if (kind == FaultKind::dtype) s.dtype = s.dtype == DType::i32 ? DType::u32 : DType::i32;
  if (kind == FaultKind::op) s.op = s.op == ReduceOp::max ? ReduceOp::min : ReduceOp::max;
  if (kind == FaultKind::root) ++s.root;
  if (kind == FaultKind::order) ++s.sequence;
  return call;
}

// A message that is neither sent nor received.
class NoTransfer final : public Transfer {
 public:
  void wait() override {}
  std::optional<double> arrives_at() override { return 0; }
};

class FaultyTransport final : public TransportDecorator,
                              public OperationBoard,
                              public SharedMemory,
                              public ReceiveWindows {
 public:
  // The world has `ranks` ranks.
  FaultyTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan, int ranks,
                  std::shared_ptr<FaultRecord> record)
      : TransportDecorator(std::move(inner)),
        plan_(plan),
        ranks_(ranks),
        record_(std::move(record)) {
    capabilities_.operations = this;
    if (capabilities_.shared_memory) capabilities_.shared_memory = this;
    if (capabilities_.windows) capabilities_.windows = this;
  }

  void enter(const Call& call) override {
    begin(call);
    if (skips()) return;
    inner_->enter(planted(call));
  }
  void leave() override {
    // After a skipped call, later calls get the numbers they would have without it.
    if (skips())
      ++skipped_;
    else
      inner_->leave();
    active_ = false;
  }
  Request isend(const Call& call, Slice data, int to) override {
    const LoneMessage message(*this, call);
    if (skips()) return std::make_unique<NoTransfer>();
    poison(data);
    return inner_->isend(planted(call), data, to);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    const LoneMessage message(*this, call);
    if (skips()) return std::make_unique<NoTransfer>();
    return inner_->irecv(planted(call), data, from);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    const LoneMessage message(*this, call);
    if (skips()) return std::make_unique<NoTransfer>();
    return inner_->irecv_reduce(planted(call), growing, from, op);
  }
  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) override {
    return skips() ? nullptr : inner_->open_window(data, from, ahead);
  }
  void send_recv(const Call& call, Slice leaving, int to, Slice arriving, int from) override {
    if (skips()) return;
    poison(leaving);
    inner_->send_recv(planted(call), leaving, to, arriving, from);
  }
  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    if (skips()) return;
    poison(leaving);
    inner_->send_recv_reduce(planted(call), leaving, to, growing, from, op);
  }
  Shown rendezvous(const Call& call, Slice from, Slice into) override {
    if (skips()) return alone(from, into);
    poison(from);
    return inner_->shared_memory()->rendezvous(planted(call), from, into);
  }
  void withdraw(const Call& call, Slice from, Slice into) override {
    if (!skips()) inner_->shared_memory()->withdraw(planted(call), from, into);
  }
  std::span<const Slice> rendezvous_with_copy(const Call& call, Slice data) override {
    if (skips()) return alone(data, {}).from;
    poison(data);
    return inner_->shared_memory()->rendezvous_with_copy(planted(call), data);
  }
  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    return std::make_unique<FaultyTransport>(inner_->subgroup(members), plan_, ranks_, record_);
  }
  // The fault occurs at the end that makes the call with the planned number.
  TwoEnds two_ends() override {
    TwoEnds ends = inner_->two_ends();
    for (auto& end : ends)
      end = std::make_unique<FaultyTransport>(std::move(end), plan_, ranks_, record_);
    return ends;
  }

 private:
  // Counts a message outside any collective as an operation.
  class LoneMessage {
   public:
    LoneMessage(FaultyTransport& transport, const Call& call)
        : transport_(transport), is_alone_(call.signature.sequence < 0) {
      if (is_alone_) transport_.begin(call);
    }
    ~LoneMessage() {
      if (is_alone_) transport_.active_ = false;
    }
    LoneMessage(const LoneMessage&) = delete;

   private:
    FaultyTransport& transport_;
    bool is_alone_;
  };

  void begin(const Call& call) {
    active_ = record_->operations.fetch_add(1) == plan_.operation;
    if (!active_) return;
    record_->alone = size() == 1;
    strike(call);
  }
  // Makes the first element a NaN, as after an overflow.
  void poison(Slice data) const {
    if (!active_ || plan_.kind != FaultKind::nan || data.count == 0 || !is_floating(data.dtype))
      return;
    double nan = std::numeric_limits<double>::quiet_NaN();
    data.device->convert(data.first(1), host_slice(std::span(&nan, 1)));
    record_->poisoned = true;
  }
  bool skips() const { return active_ && plan_.kind == FaultKind::skips; }
  Call planted(const Call& call) const {
    Call announced = active_ ? spoiled(call, plan_.kind) : call;
    if (announced.signature.sequence >= 0) announced.signature.sequence -= skipped_;
    return announced;
  }
  Shown alone(Slice from, Slice into) {
    from_.assign(static_cast<std::size_t>(size()), from);
    into_.assign(static_cast<std::size_t>(size()), into);
    return {from_, into_};
  }

  void strike(const Call& call) {
    using namespace std::chrono_literals;
    switch (plan_.kind) {
      case FaultKind::throws:
        throw Error(ErrorKind::lost_rank,
                    fmt::format("planted fault in operation {}", call.signature.text()),
                    {.rank = plan_.rank, .size = ranks_, .failed_rank = plan_.rank});
      case FaultKind::delays:
        return std::this_thread::sleep_for(100ms);
      case FaultKind::hangs: {
        // Hangs until another rank has noticed and stopped the world. Then this receive throws.
        std::byte nothing{};
        Call never = call;
        never.signature = {};
        inner_->irecv(never, {&nothing, 0, DType::u8, nullptr}, rank())->wait();
        return;
      }
      case FaultKind::kills:
        std::raise(SIGKILL);
        return;
      case FaultKind::stops:
        std::raise(SIGSTOP);
        return;
      case FaultKind::exits:
        std::exit(3);
      case FaultKind::leaves:
        std::exit(0);
      default:
        return;
    }
  }

  FaultPlan plan_;
  int ranks_;
  std::shared_ptr<FaultRecord> record_;
  bool active_ = false;
  std::int64_t skipped_ = 0;
  std::vector<Slice> from_, into_;  // slices that a rank shows itself when it skips a rendezvous
};

}  // namespace

FaultPlan parse_fault(std::string_view text) {
  FaultPlan plan;
  bool has_kind = false;
  std::set<std::string_view> given;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    require(equals != std::string_view::npos && (key == "rank" || key == "op" || key == "kind"),
            fmt::format("--fault: cannot read '{}'", item), "write rank=R,op=N,kind=K");
    require(given.insert(key).second, fmt::format("--fault: {} is given twice", key),
            "one fault strikes once: write rank=R,op=N,kind=K");
    const std::string_view value = item.substr(equals + 1);
    if (key == "rank") {
      const std::int64_t rank = number(key, value);
      require(rank <= std::numeric_limits<int>::max(), fmt::format("--fault: rank {}", rank),
              "ranks are numbers from 0 to the number of ranks less 1");
      plan.rank = static_cast<int>(rank);
    }
    if (key == "op") plan.operation = number(key, value);
    if (key == "kind") plan.kind = kind_from_name(value), has_kind = true;
  }
  require(has_kind, "--fault: no kind given", "write rank=R,op=N,kind=K");
  return plan;
}

std::unique_ptr<Transport> faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan,
                                  bool processes, const std::shared_ptr<FaultRecord>& record) {
  const bool needs_process = plan.kind == FaultKind::kills || plan.kind == FaultKind::stops ||
                             plan.kind == FaultKind::exits || plan.kind == FaultKind::leaves;
  require(processes || !needs_process,
          "--fault: kill, stop, exit and leave need ranks that are processes",
          "run under mpirun, or plant throw or hang");
  require(plan.rank < inner->size(),
          fmt::format("--fault: rank {} of a world of {}", plan.rank, inner->size()),
          fmt::format("ranks are 0 to {}", inner->size() - 1));
  if (plan.rank != inner->rank()) return inner;
  const int ranks = inner->size();
  return std::make_unique<FaultyTransport>(std::move(inner), plan, ranks, record);
}

void require_struck(const FaultPlan& plan, const FaultRecord& record, int rank) {
  if (rank != plan.rank) return;
  const std::int64_t made = record.operations;
  require(made > plan.operation,
          fmt::format("--fault: op={}, but rank {} has made only {} operations", plan.operation,
                      rank, made),
          "choose a smaller number: they count from 0");
  const bool concerns_others = plan.kind == FaultKind::skips || plan.kind >= FaultKind::count;
  require(
      !concerns_others || !record.alone,
      fmt::format("--fault: operation {} of rank {} is in a group of one rank, so the fault has "
                  "no effect there",
                  plan.operation, rank),
      "choose another number");
  require(plan.kind != FaultKind::nan || record.poisoned,
          fmt::format("--fault: operation {} of rank {} sends no floating-point numbers, so a NaN "
                      "has no effect there",
                      plan.operation, rank),
          "choose another number");
}

}  // namespace lockstep
