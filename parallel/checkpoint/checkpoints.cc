#include "parallel/checkpoint/checkpoints.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <thread>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "collectives/gather/gather.h"
#include "parallel/checkpoint/copy.h"
#include "parallel/checkpoint/files.h"

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
  double blocked_seconds = 0;  // for which training waited
  std::atomic<bool> done = false;
  std::exception_ptr failure;
  std::jthread thread;  // the last member: the others must live as long as it runs
};

Checkpoints::Checkpoints(Training& training, TrainingRank& rank, LossScaler& scaler)
    : training_(training),
      rank_(rank),
      scaler_(scaler),
      whole_(whole_boxes(training.plan().model)) {
  if (options().checkpoint.empty()) return;
  // What no run could read is not begun.
  const TrainingState state = rank_.state();
  const RankPart part(state, whole_, training.context().world.rank());
  const double tensors =
      training_.over_ranks(static_cast<double>(part.file().tensors.size()), ReduceOp::sum);
  require(tensors <= static_cast<double>(most_index_tensors),
          fmt::format("--checkpoint: {:.0f} tensors on all ranks", tensors),
          fmt::format("an index of at most {} is read; use fewer ranks", most_index_tensors));
}
Checkpoints::~Checkpoints() = default;

bool Checkpoints::all_ranks(bool condition) {
  return training_.over_ranks(condition ? 1 : 0, ReduceOp::min) > 0;
}
void Checkpoints::wait_for_all() { all_ranks(true); }

// Each rank checks some of the files.
std::string Checkpoints::fault_of(const std::string& folder) {
  const Communicator& world = training_.context().world;
  try {
    const CheckpointIndex index = read_index(folder);
    CheckpointReader reader(folder, index);
    for (auto file = static_cast<std::size_t>(world.rank()); file < index.files.size();
         file += static_cast<std::size_t>(world.size()))
      reader.verify(file);
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

std::optional<int> Checkpoints::resume() {
  if (options().resume.empty()) return {};
  Communicator& world = training_.context().world;
  const std::vector<std::string> found = find_checkpoints(options().resume);
  std::string first_fault;
  for (const std::string& folder : found) {
    const std::string own_fault = fault_of(folder);
    if (all_ranks(own_fault.empty())) {
      load(folder);
      return training_.result().resumed->step;
    }
    world.set_label(report_label);
    for (const std::string& fault : gather_text(world, own_fault)) {
      if (fault.empty()) continue;
      if (first_fault.empty()) first_fault = fault;
      if (found.size() > 1)
        fmt::print(stderr, "lockstep: passing over a checkpoint: {}\n", printable(fault));
      break;
    }
  }
  require(world.rank() != 0, first_fault,
          found.size() > 1 ? fmt::format("none of the {} checkpoints in {} is whole", found.size(),
                                         options().resume)
                           : "the checkpoint is damaged; use another one");
  wait_for_all();  // fails, because rank 0 has
  return {};
}

void Checkpoints::load(const std::string& folder) {
  const CheckpointIndex index = read_index(folder);
  const Plan& plan = training_.plan();
  require(gpt_config_json(index.model) == gpt_config_json(plan.model),
          fmt::format("{} is of another model", folder),
          "give its --model: see 'model' in its index.json");
  const DataPosition here = data_position();
  const auto require_same = [&](bool is_same, std::string_view what) {
    require(is_same, fmt::format("{} was written with {}", folder, what),
            "a resumed training takes the same sequences; to train its weights in another way: "
            "lockstep checkpoint export, then --init");
  };
  require_same(index.data.fingerprint == here.fingerprint, "other --data");
  require_same(index.data.order == here.order, fmt::format("--order {}", index.data.order));
  require_same(index.data.documents == here.documents,
               index.data.documents ? "--documents" : "no --documents");
  require_same(index.data.seed == here.seed, fmt::format("--seed {}", index.data.seed));
  require_same(index.data.global_batch == here.global_batch,
               fmt::format("--global-batch {}", index.data.global_batch));
  require_same(index.data.sequence_length == here.sequence_length,
               fmt::format("--sequence-length {}", index.data.sequence_length));
  require_same(index.data == here,
               fmt::format("--validation-fraction {}", index.data.validation_fraction));
  require(index.step < options().steps,
          fmt::format("{} has taken {} steps, --steps is {}", folder, index.step, options().steps),
          "give the steps of the whole training");

  CheckpointReader reader(folder, index);
  reader.restore(rank_.state(), whole_);
  rank_.take_restored();
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
  std::error_code none;
  const auto canonical = [&](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(path / "", none);
  };
  const std::filesystem::path folder = canonical(options().checkpoint);
  const bool goes_on = !options().resume.empty() &&
                       (canonical(options().resume) == folder ||
                        canonical(std::filesystem::path(options().resume) / "..") == folder);
  if (training_.context().world.rank() == 0) prepare_folder(options().checkpoint, goes_on);
  wait_for_all();
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
  if (!unfinished_->thread.joinable() || is_last) {
    if (unfinished_->thread.joinable()) unfinished_->thread.join();
    unfinished_->blocked_seconds = seconds_since(began);
    commit();
  } else {
    unfinished_->blocked_seconds = seconds_since(began);
  }
}

void Checkpoints::begin(int steps_taken) {
  unfinished_.reset(new Unfinished{
      .place = {options().checkpoint, steps_taken}, .index = index_at(steps_taken), .file = {}});
  Unfinished& checkpoint = *unfinished_;
  if (training_.context().world.rank() == 0) checkpoint.place.make();
  wait_for_all();
  const TrainingState state = rank_.state();
  const RankPart part(state, whole_, training_.context().world.rank());
  checkpoint.file = part.file();
  if (!options().checkpoint_async) {
    if (checkpoint.file.tensors.empty()) return;
    FileWriter writer(checkpoint.place.path(), checkpoint.file);
    part.copy([&](std::size_t tensor, Count first, Slice values) {
      writer.write(tensor, first, values);
    });
    writer.finish();
    return;
  }
  checkpoint.thread =
      std::jthread([&checkpoint, copy = StateCopy(part, training_.context().ledger)] {
        try {
          if (!checkpoint.file.tensors.empty()) {
            FileWriter writer(checkpoint.place.path(), checkpoint.file);
            copy.write(writer);
            writer.finish();
          }
        } catch (...) {
          checkpoint.failure = std::current_exception();
        }
        checkpoint.done = true;
      });
}

// All ranks have written their files.
void Checkpoints::commit() {
  const std::unique_ptr<Unfinished> checkpoint = std::move(unfinished_);
  if (checkpoint->thread.joinable()) checkpoint->thread.join();
  if (checkpoint->failure) std::rethrow_exception(checkpoint->failure);
  Communicator& world = training_.context().world;
  world.set_label(report_label);
  const std::string own =
      checkpoint->file.tensors.empty() ? "" : json_line(json_of(checkpoint->file));
  for (const std::string& text : gather_text(world, own))
    if (!text.empty())
      checkpoint->index.files.push_back(
          file_from_json(nlohmann::ordered_json::parse(text), whole_));
  if (world.rank() != 0) return;
  write_file(std::filesystem::path(checkpoint->place.path()) / index_name,
             index_text(checkpoint->index));
  checkpoint->place.commit();
  if (options().keep > 0) checkpoint->place.keep_newest(options().keep);
  training_.result().checkpoints.push_back({.step = checkpoint->index.step,
                                            .folder = checkpoint->place.final_path(),
                                            .bytes = checkpoint->index.bytes(),
                                            .blocked_seconds = checkpoint->blocked_seconds,
                                            .seconds = seconds_since(checkpoint->began)});
}

DataPosition Checkpoints::data_position() const {
  return {.fingerprint = training_.dataset().checksum(),
          .order = options().order,
          .documents = options().documents,
          .seed = options().seed,
          .global_batch = options().global_batch,
          .sequence_length = training_.plan().tokens_of_sequence(),
          .validation_fraction = options().validation_fraction};
}

CheckpointIndex Checkpoints::index_at(int steps_taken) {
  // Some ranks have no optimizer.
  double optimizer_steps = 0;
  for (const AdamW* optimizer : rank_.state().optimizers)
    optimizer_steps = static_cast<double>(optimizer->steps());
  optimizer_steps = training_.over_ranks(optimizer_steps, ReduceOp::max);
  return {.step = steps_taken,
          .optimizer_steps = static_cast<std::int64_t>(optimizer_steps),
          .loss_scaling = loss_scaling(options()),
          .scaler = scaler_.state(),
          .data = data_position(),
          .model = training_.plan().model,
          .plan = plan_json(training_.plan()),
          .files = {}};
}

}  // namespace lockstep
