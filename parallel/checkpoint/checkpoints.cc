#include "parallel/checkpoint/checkpoints.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <thread>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/gather/gather.h"
#include "parallel/checkpoint/copy.h"
#include "parallel/checkpoint/files.h"
#include "parallel/checkpoint/index_file.h"
#include "parallel/checkpoint/same_training.h"
#include "parallel/data/outer_optimizer.h"
#include "parallel/plan/plan_claims.h"
#include "parallel/rank/router_balance.h"

namespace lockstep {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// A checkpoint that ranks are writing.
struct Checkpoints::Unfinished {
  NewCheckpoint place;
  CheckpointIndex index;
  StoredFile file;  // this rank's
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  double blocked_seconds = 0;  // while training waited
  std::atomic<bool> done = false;
  std::exception_ptr failure;
  std::jthread thread;  // the last member: the others must live as long as it runs

  // Writes this rank's file, into which `give` puts all values. A failure is kept: rank 0's would
  // remove the folder in which others are still writing.
  void write(const std::function<void(FileWriter&)>& give) {
    try {
      if (!file.tensors.empty()) {
        FileWriter writer(place.path(), file);
        give(writer);
        writer.finish();
      }
    } catch (...) {
      failure = std::current_exception();
    }
    done = true;
  }
};

Checkpoints::Checkpoints(Training& training, TrainingRank& rank, LossScaler& scaler)
    : training_(training),
      rank_(rank),
      scaler_(scaler),
      whole_(whole_boxes(training.plan().model, lora_config(options()))) {}
Checkpoints::~Checkpoints() = default;

bool Checkpoints::all_ranks(bool condition) {
  return training_.over_ranks(condition ? 1 : 0, ReduceOp::min) > 0;
}
void Checkpoints::wait_for_all() { all_ranks(true); }

struct Checkpoints::Checked {
  std::shared_ptr<const CheckpointIndex> index;
  std::unique_ptr<CheckpointReader> reader;
  std::string fault;
};

// Each rank checks some of the files.
Checkpoints::Checked Checkpoints::check(const std::string& folder) {
  const Communicator& world = training_.context().world;
  Checked checked;
  try {
    checked.index = shared_index(folder);
    checked.reader = std::make_unique<CheckpointReader>(folder, *checked.index);
    for (auto file = static_cast<std::size_t>(world.rank()); file < checked.index->files.size();
         file += static_cast<std::size_t>(world.size()))
      checked.reader->verify(file);
  } catch (const Error& error) {
    checked.fault = error.message();
  }
  return checked;
}

std::vector<std::string> Checkpoints::named_by_resume() {
  Communicator& world = training_.context().world;
  std::string names;
  if (world.rank() == 0) {
    const std::vector<std::string> found = find_checkpoints(options().resume);
    require_one_branch(found, "--resume ");
    for (const std::string& folder : found) names += folder + '\0';
  }
  world.set_label(report_label);
  names = broadcast_text(world, std::move(names));
  std::vector<std::string> found;
  for (std::size_t at = 0; at < names.size(); at += found.back().size() + 1)
    found.emplace_back(names.c_str() + at);
  return found;
}

std::optional<int> Checkpoints::resume() {
  if (options().resume.empty()) return {};
  Communicator& world = training_.context().world;
  const std::vector<std::string> found = named_by_resume();
  std::string first_fault;
  for (auto folder = found.begin(); folder != found.end(); ++folder) {
    Checked checkpoint = check(*folder);
    if (all_ranks(checkpoint.fault.empty())) {
      load(checkpoint, *folder);
      if (folder_) folder_->go_on_from(*folder, *checkpoint.index, {found.begin(), folder});
      return checkpoint.index->step;
    }
    world.set_label(report_label);
    for (const std::string& fault : gather_text(world, checkpoint.fault)) {
      if (fault.empty()) continue;
      if (first_fault.empty()) first_fault = fault;
      if (found.size() > 1)
        fmt::print(stderr, "lockstep: skipping a damaged checkpoint: {}\n", printable(fault));
      break;
    }
  }
  require(world.rank() != 0, first_fault,
          found.size() > 1 ? fmt::format("none of the {} checkpoints in {} is intact", found.size(),
                                         options().resume)
                           : "the checkpoint is damaged; use another one");
  wait_for_all();  // fails, because rank 0 has
  return {};
}

// All ranks have read the same index: another run may be replacing checkpoints.
void Checkpoints::require_same(const CheckpointIndex& index, const std::string& folder) {
  constexpr std::uint64_t exact_in_double = (std::uint64_t{1} << 53) - 1;
  const auto sum = static_cast<double>(index.checksum & exact_in_double);
  require(training_.over_ranks(sum, ReduceOp::min) == training_.over_ranks(sum, ReduceOp::max),
          fmt::format("{} was replaced while it was read", folder),
          "try again when nothing writes to its folder");
}

void Checkpoints::load(Checked& checkpoint, const std::string& folder) {
  const CheckpointIndex& index = *checkpoint.index;
  require_same(index, folder);
  require_same_training(training_, index, folder);
  CheckpointReader& reader = *checkpoint.reader;
  const std::vector<TrainingState> sets = rank_.states();
  for (const TrainingState& state : sets) reader.restore(state, whole_);
  reader.restore_own(sets, training_.context().world.rank());
  reader.require_unchanged();
  rank_.take_restored();
  set_biases(rank_.routers(), index.router_biases);
  restore_scaler(index, folder);
  ResumedRecord& record = training_.result().resumed.emplace();
  record = {.step = index.step, .folder = folder};
  Communicator& world = training_.context().world;
  world.set_label(report_label);
  for (const std::string& bytes : gather_text(world, std::to_string(reader.bytes_read())))
    record.read_bytes.push_back(std::stoll(bytes));
}

// The rules count overflows in different ways.
void Checkpoints::restore_scaler(const CheckpointIndex& index, const std::string& folder) {
  const std::string rule = loss_scaling(options());
  if (index.loss_scaling == rule) return scaler_.restore(index.scaler);
  if (rule == "none" || training_.context().world.rank() != 0) return;
  fmt::print(stderr,
             "lockstep: {} was written with --loss-scaling {}: that of {} begins with its first "
             "scale, {}\n",
             printable(folder), printable(index.loss_scaling), rule, scaler_.scale());
}

void Checkpoints::prepare() {
  if (options().checkpoint.empty()) return;
  Communicator& world = training_.context().world;
  if (world.rank() == 0) frozen_ = frozen_contents(options());
  if (world.rank() == 0)
    folder_ = std::make_unique<OwnFolder>(options().checkpoint, options().resume);
  const std::uint64_t run = folder_ ? std::stoull(folder_->branch().run, nullptr, 16) : 0;
  const RankPart part(rank_.states(), shared_settings(options()), whole_, world.rank());
  // Sums over all ranks: the tensors, and the halves of rank 0's run, which are exact as doubles.
  std::array<double, 3> sums = {static_cast<double>(part.file().tensors.size()),
                                static_cast<double>(run >> 32),
                                static_cast<double>(run & 0xffffffff)};
  world.set_label(report_label);
  all_reduce(world, host_slice(std::span<double>(sums)), ReduceOp::sum);
  // Does not begin a checkpoint that no run could read.
  require(sums[0] <= static_cast<double>(most_index_tensors),
          fmt::format("--checkpoint: {:.0f} tensors on all ranks", sums[0]),
          fmt::format("an index of at most {} is read; use fewer ranks", most_index_tensors));
  run_ = fmt::format("{:08x}{:08x}", static_cast<std::uint32_t>(sums[1]),
                     static_cast<std::uint32_t>(sums[2]));
}

void Checkpoints::after_step(int steps_taken) {
  if (options().checkpoint.empty()) return;
  const int interval = options().checkpoint_interval;
  const bool is_last = steps_taken == options().steps;
  const bool is_due = is_last || (interval > 0 && steps_taken % interval == 0);
  const auto began = std::chrono::steady_clock::now();
  if (unfinished_) {
    // Until all ranks have written their files, training goes on.
    if (is_due) unfinished_->thread.join();
    if (all_ranks(unfinished_->done)) commit();
  }
  if (!is_due) return;
  begin(steps_taken);
  const bool is_written = !unfinished_->thread.joinable();
  if (is_last && !is_written) unfinished_->thread.join();
  unfinished_->blocked_seconds = seconds_since(began);
  if (is_written || is_last) commit();
}

void Checkpoints::begin(int steps_taken) {
  unfinished_.reset(new Unfinished{.place = {options().checkpoint, steps_taken, run_},
                                   .index = index_at(steps_taken),
                                   .file = {}});
  Unfinished& checkpoint = *unfinished_;
  if (training_.context().world.rank() == 0) checkpoint.place.make();
  wait_for_all();
  const RankPart part(rank_.states(), shared_settings(options()), whole_,
                      training_.context().world.rank());
  checkpoint.file = part.file();
  if (!options().checkpoint_async)
    return checkpoint.write([&](FileWriter& writer) {
      part.copy([&](std::size_t tensor, Count first, Slice values) {
        writer.write(tensor, first, values);
      });
    });
  checkpoint.thread =
      std::jthread([&checkpoint, copy = StateCopy(part, training_.context().ledger)] {
        checkpoint.write([&](FileWriter& writer) { copy.write(writer); });
      });
}

void Checkpoints::commit() {
  const std::unique_ptr<Unfinished> checkpoint = std::move(unfinished_);
  if (checkpoint->thread.joinable()) checkpoint->thread.join();
  wait_for_all();  // each rank's file is written, or its failure known
  if (checkpoint->failure) std::rethrow_exception(checkpoint->failure);
  Communicator& world = training_.context().world;
  world.set_label(report_label);
  const std::string own =
      checkpoint->file.tensors.empty() ? "" : json_line(json_of(checkpoint->file));
  const CheckpointIndex& index = checkpoint->index;
  const MatrixBoxes matrices =
      matrix_boxes(index.settings(), trained_parameters(index.model, index.lora));
  for (const std::string& text : gather_text(world, own))
    if (!text.empty())
      checkpoint->index.files.push_back(
          file_from_json(nlohmann::ordered_json::parse(text), whole_, matrices, index.states));
  if (world.rank() != 0) return;
  write_file(std::filesystem::path(checkpoint->place.path()) / index_name,
             index_text(checkpoint->index));
  folder_->commit(checkpoint->place, options().keep);
  training_.result().checkpoints.push_back({.step = checkpoint->index.step,
                                            .folder = checkpoint->place.final_path(),
                                            .bytes = checkpoint->index.bytes(),
                                            .blocked_seconds = checkpoint->blocked_seconds,
                                            .seconds = seconds_since(checkpoint->began)});
}

CheckpointIndex Checkpoints::index_at(int steps_taken) {
  // Some ranks have no optimizer.
  double optimizer_steps = 0;
  for (const TrainingState& state : rank_.states())
    for (const Optimizer* optimizer : state.optimizers)
      optimizer_steps = static_cast<double>(optimizer->steps());
  optimizer_steps = training_.over_ranks(optimizer_steps, ReduceOp::max);
  return {.step = steps_taken,
          .optimizer_steps = static_cast<std::int64_t>(optimizer_steps),
          .optimizer = shared_settings(options()).name,
          .states = stored_states(shared_settings(options())),
          .projection = shared_settings(options()).galore,
          .loss_scaling = loss_scaling(options()),
          .scaler = scaler_.state(),
          .data = data_position(training_),
          .model = training_.plan().model,
          .lora = lora_config(options()),
          .frozen = frozen_,
          .router_biases = all_biases(training_.context().world, training_.plan().model.experts,
                                      rank_.routers()),
          .plan = plan_json(training_.plan()),
          .files = {},
          .branch = folder_ ? folder_->branch() : Branch{}};
}

}  // namespace lockstep
