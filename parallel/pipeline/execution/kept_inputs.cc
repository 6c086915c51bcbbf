#include "parallel/pipeline/execution/kept_inputs.h"

#include <algorithm>

#include "models/gpt/activation_bytes.h"
#include "parallel/pipeline/execution/stashes.h"

namespace lockstep {
namespace {

// Returns the activations of the largest micro-batch.
ActivationBytes activation_bytes(const Plan& plan, int rank) {
  return {plan.model, std::ranges::max(plan.rows(rank)), plan.options.dtype, plan.split(rank),
          plan.stage_options()};
}

// The most inputs that a rank keeps at once.
int most_kept(const Plan& plan, int rank) {
  const StashPeaks peaks = stash_peaks(plan, rank);
  return plan.recomputes_stages() ? peaks.inputs : peaks.blocks;
}

}  // namespace

KeptInputs::KeptInputs(RankContext& context, const Plan& plan, Communicator& tensor,
                       TensorRanks& split)
    : ledger_(context.ledger), split_(split), kept_(plan.stage_options().kept_input) {
  const int rank = context.world.rank(), most = most_kept(plan, rank);
  if (kept_ != KeptInput::offloaded || most == 0) return;
  const Count part = activation_bytes(plan, rank).own_part();
  slot_bytes_ = DirectFile::moved_bytes(part);
  for (Buffer& buffer : buffers_)
    buffer.part = Tensor({part / element_bytes(plan.options.dtype)}, plan.options.dtype, ledger_,
                         MemoryUse::activations);
  tier_.emplace(context, tensor, plan.options.offload_to, most * slot_bytes_,
                MemoryUse::activations);
}

Slice KeptInputs::own_part(Slice input) const {
  return is_cut() ? Chunks(input, split_.split().ranks)[split_.split().rank] : input;
}

int KeptInputs::new_number() {
  if (free_.empty()) return numbers_++;
  const int number = free_.back();
  free_.pop_back();
  return number;
}

// Alternates between two buffers, so that one part is copied while the other is moved.
KeptInputs::Buffer& KeptInputs::free_buffer() {
  turn_ = 1 - turn_;
  if (buffers_[turn_].number) turn_ = 1 - turn_;
  return buffers_[turn_];
}

void KeptInputs::wait(const Buffer& buffer) {
  if (buffer.last) split_.wait([&] { buffer.last->wait(); });
}

int KeptInputs::keep(Slice input) {
  const int number = new_number();
  const Slice part = own_part(input);
  if (!tier_) {
    parts_.resize(static_cast<std::size_t>(numbers_));
    Tensor& kept = parts_[static_cast<std::size_t>(number)];
    ensure(kept, {part.count}, part.dtype, ledger_, MemoryUse::activations);
    part.device->copy(kept.slice(), part);
    return number;
  }
  Buffer& buffer = free_buffer();
  wait(buffer);
  const Slice leaving = buffer.part.slice().first(part.count);
  part.device->copy(leaving, part);
  buffer.last = tier_->write(place(number), leaving);
  return number;
}

// Transfers run in order, so what the buffer held before has been written.
KeptInputs::Buffer& KeptInputs::fetch(int number, Count count) {
  for (Buffer& buffer : buffers_)
    if (buffer.number == number) return buffer;
  Buffer& buffer = free_buffer();
  buffer.number = number;
  buffer.last = tier_->read(place(number), buffer.part.slice().first(count));
  return buffer;
}

void KeptInputs::bring_back(Slice input, int number, std::optional<int> next) {
  const Slice part = own_part(input);
  if (tier_) {
    Buffer& buffer = fetch(number, part.count);
    if (next) fetch(*next, part.count);
    wait(buffer);
    part.device->copy(part, buffer.part.slice().first(part.count));
    buffer.number.reset();
  } else {
    part.device->copy(part, parts_[static_cast<std::size_t>(number)].slice());
  }
  free_.push_back(number);
  if (is_cut()) split_.gather(input, TensorRanks::inputs_label);
  if (tier_) split_.announce(Operation::send_recv, {}, input);
}

namespace {

// Returns how many inputs of a micro-batch a rank keeps.
int inputs_kept(const Plan& plan, int rank) {
  int inputs = 0;
  const std::vector<int> rank_of_stage = plan.schedule.rank_of_stage();
  for (int stage = 0; stage < plan.schedule.stages; ++stage) {
    if (rank_of_stage[static_cast<std::size_t>(stage)] != plan.place(rank, Axis::pp)) continue;
    if (!plan.recomputes_stages())
      inputs += layers_of_stage(plan.model.layers, plan.schedule.stages, stage).count;
    else if (stage > 0)
      ++inputs;
  }
  return inputs;
}

// Returns what a step moves to the tier, which is also what it moves back.
Count moved_bytes(const Plan& plan, int rank) {
  const int inputs = inputs_kept(plan, rank);
  Count moved = 0;
  for (const Count rows : plan.rows(rank)) {
    const ActivationBytes bytes(plan.model, rows, plan.options.dtype, plan.split(rank),
                                plan.stage_options());
    moved += inputs * Tier::moved_bytes(plan.options.offload_to, bytes.own_part());
  }
  return moved;
}

}  // namespace

Terms kept_inputs_terms(const Plan& plan, int rank, bool computes_on_host) {
  Terms terms{.part = PlanPart::kept_inputs};
  const KeptInput kept = plan.stage_options().kept_input;
  if (kept == KeptInput::whole || most_kept(plan, rank) == 0) return terms;
  terms.send(TensorRanks::inputs_label, {}, 0, "(t-1)/t * tokens * C * beta * kept inputs");
  if (kept == KeptInput::part) return terms;
  const Count buffers = 2 * activation_bytes(plan, rank).own_part();
  terms.hold(
      {.use = MemoryUse::activations,
       .bytes = buffers + (computes_on_host ? Tier::memory_bytes(plan.options.offload_to) : 0),
       .formula = "2 parts of inputs"});
  const Count moved = moved_bytes(plan, rank);
  terms.offload = {.read_bytes = moved, .written_bytes = moved};
  terms.offload_read_formula = terms.offload_written_formula =
      "tokens * C / t * beta * kept inputs";
  return terms;
}

}  // namespace lockstep
