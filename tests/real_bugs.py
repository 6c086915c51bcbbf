"""Plants bugs that real systems have had, one at a time, in a copy of the sources: the fuzzer must find each. Most gave wrong
gradients and a loss that looked right. The fuzzer does not run all code: a bug hunt elsewhere names a command whose exit status shows
the bug (found_by in hunts.json).

python3 real_bugs.py --check           checks that every bug can still be planted (a test runs this)
python3 real_bugs.py [PART OF A NAME]  builds the program with each bug, and fuzzes at most PLANS plans; a minute or two per bug.
                                       Then once more with tags alone, without data and without a reference.

A name is a repository and the number of the issue or pull request there; a letter follows where one report holds several. Those of
lockstep were planted where the fuzzer was once blind.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from mutants import ROOT, run, with_bug

PLANS = 1000

HUNTS = json.loads((ROOT / "labs/hunts.json").read_text())
# By name: the command that finds a bug in place of the fuzzer, and its exit status without and with the bug.
FOUND_BY = {hunt["bug"]: hunt["found_by"] for hunt in HUNTS if "found_by" in hunt}

CHECKPOINTS = "parallel/checkpoint/checkpoints.cc"
TRAINER = "parallel/train/trainer.cc"
TRAINING = "parallel/rank/training.cc"
EXECUTOR = "parallel/pipeline/execution/executor.cc"
RANK_PROGRAM = "parallel/pipeline/execution/rank_program.cc"
TIED = "parallel/pipeline/execution/tied_embedding.cc"
RUNTIME = "parallel/train/runtime.cc"
SHARDED = "parallel/sharded/sharded.cc"
REDUCER = "parallel/sharded/reducer.cc"
VOCABULARY = "parallel/tensor/vocabulary.cc"

# (name, what goes wrong, file, original text, text with the bug)
BUGS = [
    # Scaling and counts
    ("torchtitan-2972", "under a pipeline gradients are not divided by the targets", EXECUTOR,
     "micro_batches, share, share * loss_scale);", "micro_batches, share, (training_.stages > 1 ? 1.0 : share) * loss_scale);"),
    ("torchtitan-1733", "each micro-batch is scaled down by the number of those before it", EXECUTOR,
     "Targets{b.targets, scale_}) *", "Targets{b.targets, scale_ / (1 + action.micro_batch)}) *"),
    ("deepspeed-7773", "micro-batches are summed instead of averaged", EXECUTOR,
     "share = 1.0 /", "share = static_cast<double>(std::ssize(micro_batches)) /"),
    ("transformers-34191", "the mean of micro-batches' means, not of their tokens", EXECUTOR,
     "Targets{b.targets, scale_}) *",
     "Targets{b.targets, scale_ / share_ / static_cast<double>(std::ssize(b.targets) * std::ssize(micro_batches_))}) *"),
    ("megatron-7452-9", "context-parallel ranks divide by the tokens of their shard", RUNTIME,
     "micro_batches, total_targets, loss_scale);", "micro_batches, std::max(Count{1}, total_targets / plan_.length(cp)), loss_scale);"),
    ("verl-5983", "targets are counted on one replica only", TRAINING,
     "dataset_.targets(sampling_, step));", "dataset_.targets(sampling_, step) / plan_.length(Axis::dp));"),
    ("megatron-906", "the loss is divided by the context-parallel ranks once more", RUNTIME,
     "    return own_part(loss);", "    return own_part(loss) / plan_.length(cp);"),
    ("megatron-6660", "gradients double in a group of one rank", "parallel/context/key_values.h",
     "    attend(0, own, own_gradient);\n", "    attend(0, own, own_gradient);\n    attend(0, own, own_gradient);\n"),
    ("megatron-7452-a", "with label smoothing, the other tokens are those of this rank", VOCABULARY,
     "own_.whole, scale, smoothing", "own_.real(), scale, smoothing"),
    ("megatron-7452-b", "the sums of the softmax are added over the ranks twice", VOCABULARY,
     "    ranks_.combine(sums, ReduceOp::sum);\n", "    ranks_.combine(sums, ReduceOp::sum);\n    ranks_.combine(sums, ReduceOp::sum);\n"),
    # Missing or misplaced reductions
    ("veomni-1115", "gradients are not summed over ranks that share sequences", RUNTIME,
     "plan.replica_group(rank_, set)", "plan.mesh.group_of(rank_, {dp})"),
    ("skyrl-1886", "the sum is made in a copy, which is dropped", "parallel/tensor/shared_gradients.cc",
     "    for_each([](Slice here, Slice there) { there.device->copy(there, here); });\n", ""),
    ("torchtitan-3412", "a partial sum is taken for a whole one", VOCABULARY,
     "    ranks_.sum(partial, TensorRanks::embedding_label);\n", ""),
    ("openxla-42481", "row i of one shard of the embedding gets the gradient of row i of another", VOCABULARY,
     "parameters_.gradient(tokens_), own_.first_token(), of_all", "parameters_.gradient(tokens_), 0, of_all"),
    ("megatron-7452-4", "a sum over another group, which may have the same size", SHARDED,
     "between_(data.subgroup(counterparts(data, ", "between_(data.subgroup(neighbours(data.rank(), "),
    ("piper-13", "the tied embedding is not summed between stages", TIED,
     "  if (between_)\n    return all_reduce(*between_, parameters_.gradient(tokens ? *tokens : *head), ReduceOp::sum,\n"
     "                      algorithm);\n", "  if (between_) return;\n"),
    ("pytorch-176076", "a tied copy's shard never gets its gradient", SHARDED,
     "if (layout_.all[unit].tied_copy == parameter) reduce(unit);",
     "if (layout_.all[unit].tied_copy == parameter && unit > units_.size()) reduce(unit);"),
    ("automodel-3530", "each micro-batch overwrites the gradients of those before it", VOCABULARY,
     "{parameters_.gradient(weight_), own_.count, width_}, 1);", "{parameters_.gradient(weight_), own_.count, width_}, 0);"),
    # Sequences and attention
    ("diffusers-14265", "backward sees the first block of keys in every step of the ring", "parallel/context/ring.cc",
     "    std::swap(here, next);\n", ""),
    ("transformerengine-1557", "gradients of keys and values add to those of another block", "parallel/context/ring.cc",
     "    gradient.device->zero(gradient);\n", ""),
    ("diffusers-14316", "the mask of other heads", "parallel/context/attention.cc", "  dropout.first_head += share.first;\n", ""),
    ("verl-4250", "targets are shifted after the sequence is cut", "models/data/dataset.cc",
     "? token(index + 1)", "? token(begin + positions[i + 1 < positions.count() ? i + 1 : i])"),
    # The norm
    ("megatron-7452-11", "the norm is not summed over ranks that split layers", RUNTIME,
     "sum_of_norm(*model_ranks_, square)", "sum_of_norm(*pipeline_, square)"),
    ("deepspeed-8475", "ranks' norms are averaged", SHARDED,
     "sum_of_norm(*shards_, sum); });", "sum_of_norm(*shards_, sum); });\n    sum /= shards_->size();"),
    ("transformerengine-715", "replicated parameters count once for every rank", "models/parameters.cc",
     "at_.place[axis] % placement[axis].ranks == 0",
     "(at_.place[axis] % placement[axis].ranks == 0 || placement[axis].placed == Placed::replicated)"),
    ("veomni-862", "replicas of all shards count, too", SHARDED,
     "sum_of_norm(*shards_, sum); });", "sum_of_norm(*shards_, sum); sum_of_norm(*between_, sum); });"),
    # Buffers and streams
    ("pytorch-180665", "a buffer is used again before its reduction has ended", REDUCER,
     "  if (reduction.handle) exposed_.time([&] { reduction.handle->wait(); });\n", ""),
    ("deepspeed-8061", "only the first of several reductions is waited for", "parallel/data/ddp.cc",
     "for (Stream::Handle& handle : in_flight_) handle.wait();", "if (!in_flight_.empty()) in_flight_.front().wait();"),
    ("rocm-pytorch-3501", "only the first reduction between replicas is waited for", REDUCER,
     "for (Stream::Handle& handle : between_replicas_) handle.wait();", "if (!between_replicas_.empty()) between_replicas_.front().wait();"),
    ("megatron-4371", "kept parts of activations are gathered from the wrong places", "parallel/pipeline/execution/kept_inputs.cc",
     "ranks)[split_.split().rank]", "ranks)[0]"),
    # State, start and randomness
    ("megatron-7452-12", "stages take the weights of other layers", "models/gpt/gpt_stage.cc",
     "return {.first = static_cast<int>(parts.offset(stage))", "return {.first = stage"),
    ("megatron-2769", "columns of a fused matrix are loaded to other places", "parallel/checkpoint/box.cc",
     "columns.range.first + part.first - local", "columns.range.first"),
    ("olmo-core-319", "replicas start with different weights", "parallel/data/ddp.cc",
     "    broadcast(replicas_, parameters_.values());\n", ""),
    ("tt-metal-55947", "replicas use one mask", "models/layers/masks.cc", ".first_row = rows.first}", ".first_row = 0}"),
    # What is sent
    ("torchtitan-3123", "the shorter type for gradients is ignored", "parallel/rank/gradient_exchange.cc",
     "if (!encodes_) return", "if (true) return"),
    # Where the fuzzer once was blind: the training loop, the loss scale, validation, checkpoints, limits, schedules
    ("lockstep-rate", "the learning rate is that of the next step", TRAINER,
     "rank_->update(learning_rate(options_, step),", "rank_->update(learning_rate(options_, step + 1),"),
    ("lockstep-scaler", "a checkpoint forgets the steps without overflow", CHECKPOINTS,
     "scaler_.restore(index.scaler)", "scaler_.restore({.scale = index.scaler.scale})"),
    ("lockstep-validation-rows", "a replica without rows left counts the first ones again", TRAINING,
     "if (own < rows) sum += loss;", "sum += loss;"),
    ("lockstep-validation-mean", "the validation loss is a mean over places that have no target", TRAINING,
     "static_cast<double>(dataset_.validation_targets(length))", "(static_cast<double>(rows) * length)"),
    ("lockstep-validation-tp", "all ranks that split layers add the validation loss", RUNTIME,
     "return own_part(executor_->loss_sum(batch));", "return executor_->loss_sum(batch);"),
    ("lockstep-async-copy", "the copy that is written in the background has each part at the beginning", "parallel/checkpoint/copy.cc",
     "slice(tensor).part(first, values.count)", "slice(tensor).part(first - first, values.count)"),
    ("lockstep-tier", "groups of offloaded values are written over each other", "parallel/sharded/offload.cc",
     "shard.values_at + begin * element_bytes(dtype)", "shard.values_at"),
    ("lockstep-limit", "with groups that keep shards, one block more than the limit is gathered", "parallel/sharded/order.cc",
     "gathered_blocks_ == most)", "gathered_blocks_ == most + (options_.keeps_group_shards ? 1 : 0))"),
    ("lockstep-bucket", "a bucket that holds exactly its limit stays open", "parallel/data/bucket.cc",
     "bucket.count * element < (buckets", "bucket.count * element <= (buckets"),
    ("lockstep-ulysses-kv", "heads of keys that several ranks share are dealt out in turn", "models/split.cc",
     ".first_kv = kv,", ".first_kv = rank % kv_heads,"),
    ("lockstep-steps", "after skipped steps a resumed optimizer has taken too many", "parallel/checkpoint/files.cc",
     "set_steps(index_.optimizer_steps)", "set_steps(index_.step)"),
    ("lockstep-servers-steps", "ranks without an optimizer say that none has stepped", CHECKPOINTS,
     "over_ranks(optimizer_steps, ReduceOp::max)", "over_ranks(optimizer_steps, ReduceOp::min)"),
    ("lockstep-completes", "gradients are complete with the last micro-batch, in whatever order they come", RANK_PROGRAM,
     "complete.insert(step.action.stage).second", "step.action.micro_batch + 1 == schedule.micro_batches"),
    ("lockstep-restored", "workers keep their first parameters when servers have restored theirs", "parallel/parameter_server/member.h",
     "take_restored() override { spread_parameters(); }", "take_restored() override {}"),
    ("lockstep-uneven", "the bound of activations is that of the smallest micro-batch", "parallel/predict/predict.cc",
     "bytes(plan_.model, most_rows_,", "bytes(plan_.model, std::ranges::min(rows_),"),
] + [(hunt["bug"], hunt["title"], hunt["file"], hunt["right"], hunt["wrong"]) for hunt in HUNTS]


# What found a bug: the first difference tells.
def oracle(said):
    first = said.split("\n")[1] if "\n" in said else said
    for part, name in ((" along ", "tags"), ("nothing has computed", "tags"), ("peak bytes", "memory"), ("predicted", "bytes"),
                       ("off by", "values"), ("on one rank", "values")):
        if part in first:
            return name
    return "an error"


# The number of the plan that is wrong, and what found it.
def found_by(copy, folder, flags):
    said = run(["build/release/bin/lockstep", "fuzz", "--plans", str(PLANS), "--no-shrink", "--output", folder, *flags], copy).stdout
    plan = re.search(r"^plan (\d+) of seed 1 is wrong", said, re.MULTILINE)
    return f"plan {plan[1]}, by {oracle(said[plan.start():])}" if plan else ""


def found_by_command(copy, command, status, status_with_bug):
    launcher = "./lockstep "
    assert launcher in command and status != status_with_bug, command
    done = run(["bash", "-c", command.replace(launcher, "build/release/bin/lockstep ")], copy)
    return f"by {command.rpartition(launcher)[2].split()[0]}" if done.returncode == status_with_bug else ""


def main():
    if sys.argv[1:] == ["--check"]:
        names = [name for name, *_ in BUGS]
        assert len(names) == len(set(names)) >= 40, "40 bugs, each with a name of its own"
        for _, _, name, right, wrong in BUGS:
            with_bug((ROOT / name).read_text(), name, right, wrong)
        return 0
    missed = by_tags = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("build", "out", ".git", "__pycache__"))
        run(["cmake", "--preset", "release"], copy)
        print(f"{'bug':<24} {'fuzzer':<22} {'tags alone':<22}")
        for bug, what, name, right, wrong in BUGS:
            if not all(part in bug for part in sys.argv[1:]):
                continue
            text = (copy / name).read_text()
            (copy / name).write_text(with_bug(text, name, right, wrong))
            if run(["ninja", "-C", "build/release", "program"], copy).returncode != 0:
                everything, tags = "does not build", ""
            elif bug in FOUND_BY:
                everything, tags = found_by_command(copy, **FOUND_BY[bug]), ""
            else:
                everything, tags = found_by(copy, folder, []), found_by(copy, folder, ["--tags"])
            missed += not everything.startswith(("plan", "by"))
            by_tags += "by tags" in tags
            print(f"{bug:<24} {everything or 'NOT FOUND':<22} {tags or '-':<22} {what}", flush=True)
            (copy / name).write_text(text)
    print(f"tags alone, without a reference, find {by_tags}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
