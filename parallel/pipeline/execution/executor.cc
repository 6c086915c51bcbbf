#include "parallel/pipeline/execution/executor.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr int forward_track = 1, backward_track = 2;

Pass direction(Pass pass) { return pass == Pass::forward ? Pass::forward : Pass::backward; }

}  // namespace

Executor::Executor(RankContext& context, Communicator& pipeline, const Plan& plan,
                   std::map<int, GptStage>& stages, InputStore& inputs, ScheduleObserver& observer,
                   ComputeClock::Seconds waited, Turns* turns)
    : context_(context),
      config_(plan.model),
      dtype_(plan.options.dtype),
      training_(program_of(plan, pipeline.rank())),
      validation_(validation_program_of(plan.schedule, pipeline.rank())),
      stages_(stages),
      inputs_(inputs),
      observer_(observer),
      recomputes_(plan.recomputes_stages()),
      compute_clock_(context.world, plan.options, std::move(waited),
                     static_cast<int>(stages.size())),
      turns_(turns),
      stashes_(model_options(plan.options).recompute) {
  for (auto& [number, stage] : stages) stage.observe(*this);
  if (pipeline.size() == 1) return;
  channels_.emplace(Pass::forward, pipeline.duplicate(forward_track));
  channels_.emplace(Pass::backward, pipeline.duplicate(backward_track));
  channels_.at(Pass::forward).set_label("activations");
  channels_.at(Pass::backward).set_label("gradients of activations");
}

double Executor::run(std::span<const Batch> micro_batches, Count total_targets, double loss_scale) {
  if (!runs_.empty() && (std::exchange(keeps_first_run_, false) || runs_.size() == kept_runs))
    runs_.pop_front();
  runs_.emplace_back();
  runs_.back().begin = waiting_.clock().now();
  const double share = 1.0 / static_cast<double>(total_targets);
  loss_scale_ = loss_scale;
  take_steps(training_, micro_batches, share, share * loss_scale);
  runs_.back().end = waiting_.clock().now();
  return finish();
}

double Executor::loss_sum(const Batch& batch) {
  take_steps(validation_, std::span(&batch, 1), 1, 1);
  return finish();
}

void Executor::take_steps(const RankProgram& program, std::span<const Batch> micro_batches,
                          double share, double scale) {
  program_ = &program;
  micro_batches_ = micro_batches;
  share_ = share;
  scale_ = scale;
  loss_ = 0;
  for (std::size_t i = 0, taken = 1; i < program.steps.size(); i += taken, taken = 1) {
    const Step& step = program.steps[i];
    if (step.kind == Step::Kind::receive) begin_receive(step, first_number_ + program.numbers[i]);
    if (step.kind == Step::Kind::send) begin_send(i, step);
    if (step.kind == Step::Kind::collective) {
      auto& [begin, end] = runs_.back().passes.emplace_back().emplace_back();
      begin = waiting_.clock().now();
      observer_.take(step.action);
      end = waiting_.clock().now();
    }
    if (step.kind == Step::Kind::compute) taken = compute_at(i);
    for (std::size_t done = i; done < i + taken; ++done)
      for (const std::size_t send : program.taken_sends[done]) finish_send(send);
  }
}

std::size_t Executor::compute_at(std::size_t place) {
  const Action& action = program_->steps[place].action;
  // A block begins when the inputs of all its actions have arrived.
  wait_for_input(action);
  if (action.with_next) wait_for_input(program_->steps[place + 1].action);
  if (program_->begins_pair[place]) {
    completes_gradients_ = program_->completes_gradients[place + 1];
    take_turns(action, program_->steps[place + 1].action);
    return 2;
  }
  completes_gradients_ = program_->completes_gradients[place];
  compute(action);
  return 1;
}

double Executor::finish() {
  while (!sent_.empty()) finish_send(sent_.begin()->first);
  // As many on every rank: at most one for each stage and micro-batch.
  first_number_ += program_->stages * std::ssize(micro_batches_);
  return loss_;
}

// Time passes before the announcement, because what it sends leaves later on a slow rank.
void Executor::gradient_ready(int parameter, ParameterSet set) {
  compute_clock_.fall_behind();
  if (completes_gradients_) observer_.gradient_ready(parameter, set);
}

void Executor::begin_receive(const Step& step, std::int64_t number) {
  const Action& a = step.action;
  Message message{.tensor = message_tensor(a)};
  message.request = channels_.at(a.pass).irecv(message.tensor.slice(), step.peer, number);
  arriving_.emplace(Name{a.stage, a.pass, a.micro_batch}, std::move(message));
}

void Executor::begin_send(std::size_t place, const Step& step) {
  const Action& a = step.action;
  auto leaving = leaving_.extract({a.stage, a.pass, a.micro_batch});
  Message message{.tensor = std::move(leaving.mapped())};
  Communicator& channel = channels_.at(a.pass);
  channel.announce(Operation::send_recv, message.tensor.slice(), {});
  message.request =
      channel.isend(message.tensor.slice(), step.peer, first_number_ + program_->numbers[place]);
  sent_.emplace(place, std::move(message));
}

void Executor::finish_send(std::size_t place) {
  auto done = sent_.extract(place);
  done.mapped().request->wait();
  stashes_.give_message(std::move(done.mapped().tensor));
}

void Executor::wait_for_input(const Action& action) {
  const auto found = arriving_.find({action.stage, direction(action.pass), action.micro_batch});
  if (action.pass == Pass::weight_gradient || found == arriving_.end() || !found->second.request)
    return;
  const Trace::Span span(context_.trace, 0, "wait", "wait");
  waiting_.time([&] { found->second.request->wait(); });
  found->second.request.reset();
  channels_.at(direction(action.pass))
      .announce(Operation::send_recv, {}, found->second.tensor.slice());
}

Slice Executor::input_of(const Action& action) {
  const auto found = arriving_.find({action.stage, direction(action.pass), action.micro_batch});
  return found == arriving_.end() ? Slice{} : found->second.tensor.slice();
}

void Executor::drop_input(const Action& action) {
  auto used = arriving_.extract({action.stage, direction(action.pass), action.micro_batch});
  if (!used.empty()) stashes_.give_message(std::move(used.mapped().tensor));
}

Tensor Executor::message_tensor(const Action& action) {
  Tensor tensor = stashes_.take_message();
  ensure(tensor, {stage(action).outer_rows(rows(action).count()), config_.width}, dtype_,
         context_.ledger, MemoryUse::communication);
  return tensor;
}

// Hands an output to the next stage: directly on this rank, otherwise as a message.
void Executor::hand_on(const Action& action, Tensor output) {
  const Pass pass = direction(action.pass);
  const int next = action.stage + (pass == Pass::forward ? 1 : -1);
  if (stages_.contains(next))
    arriving_.emplace(Name{next, pass, action.micro_batch}, Message{.tensor = std::move(output)});
  else
    leaving_.emplace(Name{action.stage, pass, action.micro_batch}, std::move(output));
}

template <typename Work>
void Executor::timed(const Action& action, int parts, Work work) {
  if (!in_training()) return work();
  if (in_pair_) return compute_clock_.run(parts, work);  // its turns are timed
  const Trace::Span span(context_.trace, 0, text_of(action), category_of(action.pass));
  auto& [begin, end] = runs_.back().passes.emplace_back().emplace_back();
  begin = waiting_.clock().now();
  compute_clock_.run(parts, work);
  end = waiting_.clock().now();
}

std::vector<RunSeconds> Executor::runs() const {
  std::vector<RunSeconds> all;
  const auto seconds = [&](const auto& begin, const auto& end) {
    return waiting_.clock().between(begin, end);
  };
  for (const Run& run : runs_) {
    RunSeconds& times = all.emplace_back(RunSeconds{seconds(run.begin, run.end), {}});
    for (const std::vector<Interval>& pass : run.passes) {
      double& sum = times.passes.emplace_back(0);
      for (const auto& [begin, end] : pass) sum += seconds(begin, end);
    }
  }
  return all;
}

void Executor::compute(const Action& action) {
  if (action.pass == Pass::forward) return forward(action);
  if (action.pass == Pass::weight_gradient) return weight_gradient(action);
  backward(action);
}

void Executor::forward(const Action& action) {
  GptStage& s = stage(action);
  const Batch& b = batch(action);
  Flight& here = flight(action);
  most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
  Tensor output = s.is_last() ? Tensor() : message_tensor(action);
  timed(action, 1, [&] {
    stashes_.take_forward(here.stash, s);
    loss_ += s.forward(here.stash, rows(action), b.inputs, input_of(action), output.slice(),
                       Targets{b.targets, scale_}) *
             share_;
    if (recomputes_ && in_training()) keep_input_only(action, here);
  });
  drop_input(action);
  if (!in_training()) {
    --in_flight_;
    release(action);
  }
  if (!s.is_last()) hand_on(action, std::move(output));
}

void Executor::backward(const Action& action) {
  GptStage& s = stage(action);
  Flight& here = flight(action);
  Tensor output = s.is_first() ? Tensor() : message_tensor(action);
  timed(action, action.pass == Pass::backward ? 2 : 1, [&] {
    if (recomputes_) make_stash_again(action, here);
    stashes_.take_backward(here.stash, s, action.pass);
    if (action.pass == Pass::backward)
      s.backward(here.stash, batch(action).inputs, input_of(action), output.slice());
    else
      s.backward_input(here.stash, input_of(action), output.slice());
  });
  drop_input(action);
  if (!s.is_first()) hand_on(action, std::move(output));
  --in_flight_;
  if (action.pass == Pass::backward) release(action);
}

void Executor::weight_gradient(const Action& action) {
  timed(action, 1,
        [&] { stage(action).backward_weight(flight(action).stash, batch(action).inputs); });
  release(action);
}

void Executor::release(const Action& action) {
  stashes_.give(flight(action).stash, stage(action));
  flights_.erase({action.stage, action.micro_batch});
}

void Executor::keep_input_only(const Action& action, Flight& here) {
  GptStage& s = stage(action);
  if (!s.is_first()) here.input = inputs_.keep(here.stash.blocks.front().input.slice());
  stashes_.give(here.stash, s);
}

void Executor::make_stash_again(const Action& action, Flight& here) {
  GptStage& s = stage(action);
  const Batch& b = batch(action);
  Rows again = rows(action);
  again.again = true;
  Tensor output = s.is_last() ? Tensor() : message_tensor(action);
  stashes_.take_forward(here.stash, s);
  Slice input;
  if (!s.is_first()) {
    input = s.input(here.stash, rows(action));
    inputs_.bring_back(input, here.input, {});
  }
  s.forward(here.stash, again, b.inputs, input, output.slice(), Targets{b.targets, scale_});
  if (!s.is_last()) stashes_.give_message(std::move(output));
}

}  // namespace lockstep
