"""Plants bugs, one at a time, in a copy of the sources. The tests must find each; a bug that survives needs a new test.

python3 mutants.py --check          checks that every bug can still be planted (a test runs this)
python3 mutants.py [PART OF FILE]   builds and tests with each bug; takes about a minute per bug
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Tests that are not run: the others must find the bugs.
NOT_ASKED = "docs|demo|plots|launcher|mpi|format|layering|mutants"

# (file, original text, text with the bug)
MUTANTS = [
    ("collectives/reduce_scatter/ring.cc", "chunk[rank - 2 - step]", "chunk[rank - 1 - step]"),
    ("collectives/all_gather/ring.cc", "chunk[rank - 1 - step]", "chunk[rank + 1 - step]"),
    ("collectives/all_gather/bruck.cc", "part.around(rank + have, exchanged)", "part.around(rank + have, have)"),
    ("collectives/all_reduce/double_binary_tree.cc", "rank ^ bit;", "rank - 1;"),
    ("collectives/all_reduce/fold.cc", "rank >= q) comm.recv", "rank > q) comm.recv"),
    ("collectives/all_reduce/segmented_ring.cc", "sends.finish(message - growing + 1)", "sends.finish(sent)"),
    ("collectives/sends_in_flight.h", "if (sends_.size() == most_) finish_oldest();", ""),
    ("collectives/all_reduce/segmented_ring.cc", "received + most_sends + 1", "messages"),
    ("collectives/all_to_all/bruck.cc", "arriving[rank - distance]", "arriving[rank + distance]"),
    ("collectives/binomial_tree.h", "(place_ & reach_) == 0", "(place_ & reach_) != 0"),
    ("collectives/broadcast/binomial_tree.cc", "distance > 0; distance /= 2", "distance > 1; distance /= 2"),
    ("collectives/reduce_scatter/recursive_halving.cc", "(comm.rank() & half) == 0", "(comm.rank() & half) != 0"),
    ("collectives/transport/rendezvous.h", "seen[round % 2].take(other, note)", "seen[0].take(other, note)"),
    ("collectives/transport/threads.cc", "message->written.stream_wait();\n  if (op)", "if (op)"),
    ("collectives/transport/threads.cc", "return message->written.stream_wait();", "return;"),
    ("collectives/transport/threads.cc", "mailbox.receives() + ahead", "mailbox.receives() + ahead + 1"),
    ("collectives/transport/mailbox.cc", "windows_.front()->number > number", "false"),
    ("collectives/transport/mailbox.cc", "window->memory.bytes() != message.data.bytes()", "message.data.bytes() < 0"),
    ("collectives/transport/mailbox.cc", "std::erase(windows_, &window);", ""),
    ("collectives/transport/mailbox.cc", "put(Message& message) {", "put(Message& message) {\n  return;"),
    ("collectives/transport/mailbox.cc", "  window->free.stream_wait();\n", ""),
    ("collectives/transport/threads.cc", "message_->read.stream_wait();", ""),
    ("collectives/transport/rendezvous.h", "note.event.stream_wait();", ""),
    ("collectives/stream.cc", "item.before.stream_wait();", ""),
    ("collectives/stopwatch.cc", "if (device_) return {0, device_->record(true)};", ""),
    ("collectives/stream.cc", "state_->after.stream_wait();", ""),
    ("collectives/stream.cc", "last_.stream_wait();", ""),
    ("collectives/communicator.cc", "before.stream_wait();", ""),
    ("collectives/base/cuda/thread_stream.cc", "own.changed = true;  // the next", "// the next"),
    ("collectives/base/cuda/vectors.h", "(lanes - first) % lanes", "first % lanes"),
    ("collectives/transport/nccl/service.cc", "exposed.written.stream_wait(stream);", ""),
    ("collectives/transport/nccl/service.cc", "for (const auto& comm : comms) comm->abort();", ""),
    ("collectives/transport/nccl/service.cc", "  look_at_expected();\n", ""),
    ("collectives/transport/nccl/service.cc", "  look_at_comms();\n", ""),
    ("collectives/transport/nccl/service.cc", "if (!ends_service_) ends_[1]->abandon();", ""),
    ("collectives/transport/nccl/rank.cc", "if (exposed.data.device->enqueues()) exposed.read.stream_wait(stream());", ""),
    ("collectives/transport/nccl/rank.cc", "if (on_gpu) exposed->written.stream_wait(stream);", ""),
    ("collectives/transport/nccl/transport.cc", "end_.check_size(call, from, arriving, in);", ""),
    ("collectives/transport/nccl/transport.cc", "end_.check_size(call_, from_, into_, packet_->header);", ""),
    ("collectives/base/cuda/thread_stream.cc", "  use_gpu(gpu);\n  return own.on(gpu);", "  return own.on(gpu);"),
    ("collectives/transport/virtual/message.h", "std::max(now, receiver_.ingress_free)", "now"),
    ("collectives/transport/virtual/message.h", "std::max(now, sender.egress_free)", "now"),
    ("collectives/rounds.cc", "(most_moves - 1) / k * k + 1", "1"),
    ("collectives/rounds.cc", "distance < ranks_per_node", "distance <= ranks_per_node"),
    ("collectives/all_reduce/grid.cc", "std::max(1, x.ranks_per_node / grid.columns)", "1"),
    ("collectives/algorithm.h", "links.inside = links.between = slowest;", "links.between = links.inside;"),
    ("collectives/transport/virtual/message.h", "last_ = before;", "last_ = nullptr;"),
    ("collectives/transport/virtual/virtual_world.cc", "message_->keep_data();", ""),
    ("collectives/transport/board.cc", "theirs != call.signature)", "false)"),
    ("collectives/transport/blame.cc", "with_us > with_peer ? peer : rank", "with_us > with_peer ? rank : peer"),
    ("collectives/transport/blame.cc", "ours != got)", "ours == got)"),
    ("collectives/transport/blame.cc", "longest_s = silent_s, unresponsive = here;", ""),
    ("collectives/transport/blame.cc", "return unresponsive >= 0 ? unresponsive : does_not_wait;", "return does_not_wait;"),
    ("collectives/transport/blame.cc", "if (got.is_later_message_than(call.signature)) return world_rank(peer);", ""),
    ("collectives/transport/flight.h", "next_ % capacity_", "0"),
    ("collectives/communicator.cc", "if (std::uncaught_exceptions() == 0) comm_", "comm_"),
    ("collectives/transport/blame.cc", "reached.push_back(next);", "{}"),
    ("models/adamw.cc", "parameter.decays() ? options_.weight_decay : 0", "options_.weight_decay"),
    ("models/layers/block.cc", "attention_->forward(backend, middle, input", "attention_->forward(backend, middle, {}"),
    ("models/layers/block.cc", "backward_input(backend, dx, d.middle.slice()", "backward_input(backend, dx, {}"),
    ("models/layers/self_attention.cc", "kept.qkv.slice(), shape(rows), probability_mask(rows)", "kept.qkv.slice(), shape(rows), {}"),
    ("models/layers/masks.cc", "most_layers + layer)", "most_layers + 0 * layer)"),
    ("models/layers/masks.cc", "own_stream ? 0 : split_.first_outer_row(rows.count())", "0"),
    ("bench/results/statistics.cc", "std::sqrt(variance * inflation)", "std::sqrt(variance)"),
    ("bench/results/compare.cc", "interval.least >= 1 + limits.effect", "interval.most >= 1 + limits.effect"),
    ("bench/results/compare.cc", "if (shared > 0) return", "if (shared >= 0) return"),
    ("bench/results/measurements.cc", "part.starts_with(\"iterations:\") || ", ""),
    ("models/activation_bytes.cc", "of_outer(\"middle\"),\n      statistics", "statistics"),
    ("models/gpt_stage.cc", "stash.rows.in_training() ? options_.label_smoothing : 0", "options_.label_smoothing"),
    ("parallel/tensor/ranks.cc", "comm_->rank() - 1 - step", "comm_->rank() - step"),
    ("models/gpt_stage.cc", "std::swap(block.kept.attention.output, attention_output_)", "std::swap(attention_output_, attention_output_)"),
    ("parallel/tensor/ranks.cc", "wait([&] { sum.wait(); });", ""),
    ("parallel/tensor/gathered_input.cc", "split.keeps_gathered && pass == Pass::backward", "pass == Pass::backward"),
    ("parallel/tensor/row_linear.cc", "backward_bias(backend, ranks_.own_rows(dproduct)", "backward_bias(backend, dproduct"),
    ("parallel/tensor/vocabulary.cc", "std::clamp<Count>(whole - first, 0, count)", "count"),
    ("parallel/tensor/vocabulary.cc", "ranks_.combine(highest, ReduceOp::max);", ""),
    ("models/parameters.cc", ".is_partial = split_.by_sequence", ".is_partial = false"),
    ("models/parameters.cc", "parameter.tied_to.empty() && stands_for(sharing)", "parameter.tied_to.empty()"),
    ("models/parameters.cc", "parameter.tied_to.empty() && stands_for(sharing)", "stands_for(sharing)"),
    ("models/weights.cc", "there < whole[number].count && part", "part"),
    ("models/weights.cc", "value(there + k)", "value(here + k)"),
    ("parallel/tensor/layers.cc", "split.ranks / static_cast<int>(kv)", "0"),
    ("parallel/tensor/traffic.cc", "+ leaving + again);", "+ leaving);"),
    ("parallel/tensor/traffic.cc", "(!split.keeps_gathered || has_first_stage)", "!split.keeps_gathered"),
    ("parallel/runtime.cc", "shared_->reduce();", ""),
    ("parallel/runtime.cc", "if (!tied_.completes(parameter)) data_", "data_"),
    ("parallel/runtime.cc", "plan_.place(rank_, tp) == 0 ? loss : 0", "loss"),
    ("parallel/runtime.cc", "if (plan_.copy(rank) != 0) continue;", ""),
    # Context parallelism; the first four as in systems of 2025 and 2026.
    ("parallel/context/ring.cc", "    std::swap(here, next);\n", ""),  # diffusers 14265: step 0's block at every step
    ("models/dataset.cc", "? token(index + 1)",
     "? token(begin + positions[i + 1 < positions.count() ? i + 1 : i])"),  # verl 4250: labels shifted within a rank
    ("parallel/context/key_values.h", "    attend(0, own, own_gradient);\n",
     "    attend(0, own, own_gradient);\n    attend(0, own, own_gradient);\n"),  # Megatron 6660: doubled in a group of one
    ("parallel/plan.h", "return length(Axis::cp) * length(Axis::dp);", "return length(Axis::dp);"),
    ("parallel/context/ring.cc", "    gradient.device->zero(gradient);\n", ""),
    ("parallel/context/ring.cc", "if (step == 0 && !returns_all_hops_)", "if (step == 0)"),
    ("parallel/context/ring.cc", "      gradient.device->reduce(gradient, arriving, ReduceOp::sum);\n", ""),
    ("parallel/context/gather.cc", "Matrix(gradients[group_], own.rows", "Matrix(gradients[0], own.rows"),
    ("parallel/context/attention.cc", "  dropout.first_head += share.first;\n", ""),
    ("parallel/context/attention.cc", "adds && !is_query ? 1.0 : 0.0", "0.0"),
    ("parallel/context/attention.cc", "    with.keys = layout.positions_of_group", "    with.keys = part.queries; layout.positions_of_group"),
    ("parallel/context/split.cc", "(2 * c - 1) + e * (e + 1)", "(2 * c - 1) + e * e"),
    ("models/dataset.h", "Count{batch.first} * rows.whole_length()", "Count{batch.first} * batch.length"),
    ("parallel/make_plan.cc", "  check_batch(plan);\n", ""),
    ("parallel/plan.cc", "options.global_batch % (length(dp) * options.micro_batches)", "options.global_batch % options.micro_batches"),
    ("models/dataset.cc", "beginnings(begin + 1, begin + length))", "beginnings(begin + 1, begin + length - 1))"),
    ("models/dataset.cc", ": no_target", ": token(index + 1)"),
    ("models/dataset.cc", "positions[i] - place, index", "positions[i], index"),
    ("models/documents.cc", "(range.first - begin + 1)", "(range.first - begin)"),
    ("models/documents.cc", "max(total) > std::ranges::max(all)", "max(total) < std::ranges::max(all)"),
    ("models/layers/rows.h", "            .listed = token_positions", "            .listed = {}"),
    ("models/ops/cross_entropy.cc", "      std::fill_n(row, columns, T{0});\n", ""),
    ("parallel/context/attention.cc", ".documents = rows.documents}};", ".documents = {}}};"),
    ("parallel/trainer.cc", "training_.micro_batches(step), training_.targets(step)",
     "training_.micro_batches(step), training_.plan().tokens_per_step()"),  # the mean over all tokens, ends included
    ("parallel/training.cc", "static_cast<double>(dataset_.validation_targets(length))",
     "(static_cast<double>(rows) * length)"),
    ("parallel/training.cc", "plan_.place(context_.world.rank(), Axis::dp) * rows_at_once", "context_.world.rank() * rows_at_once"),
    ("parallel/pipeline/execution/messages.cc", "held.give(static_cast<int>(program.taken_sends[i].size()));", ""),
    ("parallel/pipeline/execution/executor.cc", "complete.insert(step.action.stage).second", "complete.insert(0).second"),
    ("parallel/data/ddp.cc", "queue_.rebuild();", ""),
    ("models/ops/attention_forward.h", "*= b.shrink[r];", "*= T{1};"),
    ("models/ops/attention_forward.h", "s.keys[k.first + key]", "s.keys[key]"),
    ("models/ops/attention_backward.h", "(gradient - product)", "gradient"),
    ("models/ops/attention.cc", "b.key_gradients, size, sharers.adds", "b.key_gradients, size, false"),
    ("models/ops/attention.cc", "s.queries[i]) - 1)", "s.queries[i]))"),
    ("models/ops/block_product.h", "b.data + steps.first * b.stride + column", "b.data + column"),
    ("models/ops/attention_head.h", "+ d.first_head + head", "+ head"),
    ("models/ops/attention_merge.cc", "(T{1} + std::exp(-difference))", "(T{1} + std::exp(difference))"),
    ("models/ops/attention_merge.cc", "std::max(l, other_l) + std::log1p", "std::max(l, other_l) - std::log1p"),
    ("models/token_layout.cc", "chunk(chunks - 1 - rank)", "chunk(chunks - ranks + rank)"),
    ("models/positions.h", "if (position < first) return 0;", "if (position < 0) return 0;"),
    ("models/ops/cuda/attention_part.cu", "sum[r] * shrink", "sum[r]"),
    ("models/ops/cuda/attention_part_backward.cu", "s.keys[at.first] - 1", "s.keys[at.first]"),
    ("models/ops/dropout.cc", "dropout.row(r) * columns", "r * columns"),
    ("models/ops/embedding.cc", "return places.position(r);", "return places.positions[r % places.positions.count()];"),
    ("models/ops/cross_entropy.cc", "wanted.each * logits", "wanted.each * target"),
    ("models/ops/cross_entropy.cc", "r * columns, real);", "r * columns, columns + 0 * real);"),
    ("collectives/transport/virtual/virtual_time.cc", "begin < other.resumed_at_", "false"),
    ("collectives/transport/virtual/virtual_world.cc", "arrival(*first) <= time.thread().now()", "std::isfinite(arrival(*first))"),
    ("collectives/transport/threads.cc", "if (std::uncaught_exceptions() == 0) depart();", "depart();"),
    ("models/adamw.cc", "of_group.part(begin - from,", "of_group.part(0,"),
    ("models/narrow_backend.cc", "row = Count{token} - first_token", "row = token"),
    ("models/adamw.cc", "if (has_master) convert(group.values, group.master);", ""),
    ("parallel/checkpoint/box.cc", "columns.range.first + part.first - local", "columns.range.first"),
    ("parallel/checkpoint/box.cc", "left == 0 && end - at >= stride", "left == 0"),
    ("parallel/checkpoint/files.cc", "flat.device->zero(flat);", ""),
    ("parallel/checkpoint/files.cc", "if (group.master.device) convert(group.values, group.master);", ""),
    ("parallel/checkpoint/files.cc", "optimizer->set_steps(index_.optimizer_steps);", ""),
    ("parallel/checkpoint/files.cc", "shares.offset(state.copy)", "shares.offset(0)"),
    ("parallel/checkpoint/checkpoints.cc", "scaler_.restore(index.scaler);", ";"),
    ("parallel/checkpoint/checkpoints.cc", "rank_.take_restored();", ""),
    ("parallel/checkpoint/index.cc", "if (count != all.count())", "if (count > all.count())"),
    ("parallel/checkpoint/folder.cc", "if (fs::exists(final_, none)) remove_checkpoint(final_);", ""),
    ("parallel/tensor/kept_inputs.cc", "ranks)[split_.split().rank]", "ranks)[0]"),
    ("parallel/tensor/kept_inputs.h", "return number * slot_bytes_;", "return 0;"),
    ("models/gpt_stage.h", "passing_inputs_[block % 2]", "passing_inputs_[0]"),
    ("parallel/sharded/timeline.cc", "if (sharding.shards_gradients()) threads.wait(reduced);", ""),
    ("parallel/loss_scale.cc", "if (rule_ != LossScaling::deepspeed) state_.clean_steps = 0;", "state_.clean_steps = 0;"),
    ("parallel/report.cc", "std::isfinite(record.loss) && (std", "(std"),
    ("bench/techniques/sharded_json.cc", "before / (before - after)", "after / (before - after)"),
    ("bench/techniques/sharded.cc", "held(2) * element", "held(3) * element"),
    ("parallel/dry_run.cc", ".part(m, plan.options.micro_batches)", ".part(0, plan.options.micro_batches)"),
    ("collectives/transport/absent.cc", "members, rank_) - members", "members, members.back()) - members"),
    ("parallel/trainer.cc", "scales_ && any_overflowed(record.grad_norm)", "scales_ && !std::isfinite(record.grad_norm)"),
    ("parallel/compute_clock.cc", "(slowdown_factor_ - 1) *", "slowdown_factor_ *"),
    ("parallel/pipeline/simulator/simulate.cc", "duration_(r, intervals.size() + i, block[i])", "duration_(r, i, block[i])"),
    ("parallel/parameter_server/server.cc", "clock - least > most_lead", "clock - least >= most_lead"),
    ("parallel/parameter_server/server.cc", "if (!client.lost) least", "least"),
    ("parallel/parameter_server/server.cc", "      finish_replies();\n      note", "      note"),
    ("parallel/parameter_server/server.cc", "(first + i) % roles_.workers()", "(i + 0 * first) % roles_.workers()"),
    ("parallel/parameter_server/worker.cc", "(first + i) % roles_.servers", "(i + 0 * first) % roles_.servers"),
    ("parallel/parameter_server/asynchronous.cc", "compute(micro_batches, std::max(Count{1}, own), loss_scale)",
     "compute(micro_batches, 2 * own, loss_scale)"),
    ("parallel/parameter_server/asynchronous.cc", "clip_factor(options_, push.gradient_norm)", "1"),
    ("parallel/parameter_server/roles.h", "return !colocated || two_ends;", "return !colocated;"),
    ("collectives/transport/counting.cc", "if (to != other_end_)", "if (true)"),
    ("collectives/transport/virtual/virtual_world.cc", "to_other_end ? Link{} : world", "world"),
    ("parallel/pipeline/schedules/one_f_one_b.cc", "x.ranks - 1 - stage", "x.ranks - stage"),
    ("parallel/pipeline/schedules/interleaved.cc", "2 * (x.ranks - rank - 1)", "(x.ranks - rank - 1)"),
    ("parallel/pipeline/schedules/zero_bubble.cc", ".weight_gradients = stage}", ".weight_gradients = stage + 1}"),
    ("parallel/pipeline/schedules/zb_v.cc", "up = 2 * p - 1 - r", "up = p + r"),
    ("parallel/pipeline/schedules/dualpipe_v.cc", "i > middle ||", "i >= middle ||"),
    ("parallel/pipeline/schedules/play.cc", "rank_of(*needed) == rank ? 0 : hop", "rank_of(*needed) == rank ? hop : hop"),
    ("parallel/pipeline/simulator/simulate.cc", "if (action.pass == Pass::forward) hold(r);", "hold(r);"),
    ("parallel/pipeline/schedules/check.cc", "require_of(passes.forward, rank", "require_of(true, rank"),
    ("parallel/pipeline/simulator/communication.cc", "events.push_back({intervals[i].end, false", "events.push_back({intervals[i].end, true"),
    ("parallel/pipeline/schedules/text.cc", "actions.back().with_next = false;", ""),
    ("parallel/pipeline/schedules/sharding.cc", "std::max(static_cast<std::size_t>(most), blocks[i].size())", "static_cast<std::size_t>(most)"),
    ("parallel/pipeline/schedules/sharding.cc", "++completed[action.stage] == micro_batches", "++completed[action.stage] == (micro_batches + 1) / 2"),
    ("parallel/pipeline/schedules/sharding.cc", "by_next_use.insert(by_next_use.begin(),", "by_next_use.insert(by_next_use.end(),"),
    ("parallel/pipeline/schedules/check.cc", "!is_sharded_ || s.is_unsharded", "true"),
    ("parallel/pipeline/schedules/check.cc", "!reduces_ || stages_[stage].is_reduced", "true"),
    ("parallel/pipeline/schedules/check.cc", "s.complete_gradients == schedule_.micro_batches", "s.complete_gradients > 0"),
    ("parallel/pipeline/simulator/simulate.cc", "std::max(begin, unsharded_at(action))", "std::max(begin, 0 * unsharded_at(action))"),
    ("parallel/pipeline/simulator/simulate.cc", "if (!is_local) streams_[rank].communication = end;", ""),
    ("parallel/pipeline/simulator/simulate.cc", "--held_[rank].unsharded;", "held_[rank].unsharded += 0;"),
    ("parallel/pipeline/simulator/communication.cc", "is_compute(action.pass) ? Step::Kind::compute", "true ? Step::Kind::compute"),
    ("parallel/pipeline/execution/stashes.cc", "if (makes_again && action.stage > 0) --now_.inputs;", ""),
    ("parallel/pipeline/execution/executor.cc", "if (step.action.with_next) wait_for_input", "if (false) wait_for_input"),
    ("parallel/pipeline/execution/executor.cc", "\n    s.loss(here.stash, b.targets, scale_);", "\n    s.loss(here.stash, b.targets, share_);"),
    ("parallel/pipeline/execution/tied_embedding.cc", "other.device->copy(other, sum);", ""),
    ("models/gpt_stage.cc", "  if (is_first()) embedding_backward(stash, tokens, use, ready);\n", ""),
    ("models/gpt_stage.cc", "return {.first = static_cast<int>(parts.offset(stage))", "return {.first = stage"),
    ("parallel/sharded/order.cc", "backward_pre) again(block - 1);", "backward_pre && block > 2) again(block - 1);"),
    ("parallel/sharded/sharded.cc", "    gatherer_->wait(number);\n", ""),
    ("parallel/sharded/reducer.cc", "while (returns_buffer && !sharding_.by_stage && !reductions_.empty()) finish_oldest();", ""),
    ("parallel/sharded/reducer.cc", "own.device->convert(own, unit.own_chunk(sent));", ""),
    ("parallel/sharded/reducer.cc", "if (reduction.is_last && between_.size() > 1)", "if (between_.size() > 1)"),
    ("parallel/sharded/unit.cc", "  has_reduced_ = false;\n", ""),
    ("parallel/sharded/offload.cc", "gathers[u] * moved(", "moved("),
    ("parallel/sharded/offload.cc", "if (access != StateAccess::read) keep(g);", "if (access == StateAccess::change) keep(g);"),
    ("parallel/sharded/offload.cc", "shard.values_at + begin * element_bytes(dtype)", "shard.values_at"),
    ("parallel/sharded/sharded.cc", "if (offload_ && is_narrow(parameters_.dtype()))", "if (false)"),
    ("collectives/base/direct_file.cc", "transfer(offset + begin,", "transfer(offset,"),
    ("parallel/sharded/sharding.cc", "{begin - first + piece.in_shard, end - begin}", "{piece.in_shard, end - begin}"),
    ("parallel/sharded/order.cc", "gathered_blocks_ == most) return;", "gathered_blocks_ == most + 1) return;"),
    ("parallel/sharded/order.cc", "prefetch == Prefetch::backward_post && options_.prefetch_last_block", "false"),
    ("parallel/sharded/shard_layout.cc", "in_chunk += each * columns;", "in_chunk += (end - first) * columns;"),
    ("parallel/sharded/shard_layout.cc", "parameter.region.rows.first + rows.first", "parameter.region.rows.first"),
    ("parallel/sharded/sharding_memory.cc", "if (in_group) values_.take(units_[number].group_shard);", "if (in_group) values_.take(0);"),
    ("parallel/sharded/sharding_memory.cc", "      gradients_.give(unit.whole);\n", ""),
    ("parallel/sharded/gatherer.cc", "Communicator& ranks = in_group ? *group_ : comm;", "Communicator& ranks = comm;"),
    ("parallel/sharded/unit.cc", "pool.give(std::exchange(group_shard_, {}));", "group_shard_ = {};"),
    ("parallel/sharded/unit.cc", "if (chunk.count == own.count) return put(own, chunk);", "return put(own, chunk.first(own.count));"),
    ("parallel/trainer.cc", "      if (counts) rank_->wait_for_parameters();\n", ""),
    ("parallel/sharded/sharded.cc", "if (layout_.all[unit].tied_copy == parameter) reduce(unit);", ""),
    ("parallel/sharded/sharded.cc", "&& !layout_.all[u].tied_copy) reduce(u);", ") reduce(u);"),
    ("parallel/training.cc", "if (own < rows) sum += loss;", "sum += loss;"),
    ("parallel/dry_run.cc", "const auto sharding = sharding_of(plan)", "const auto sharding = std::optional<Sharding>()"),
    ("parallel/share.h", "first + static_cast<int>(part.offset(i))", "first"),
    ("parallel/data/bucket.cc", "buckets.size() == 1 ? first_bytes : bytes", "bytes"),
    ("parallel/data/bucket.cc", "missing_[order_[next_]] == 0", "missing_[order_[next_]] <= 1"),
    ("parallel/data/bucket.h", "order_ = finished_;", ""),
    ("models/ops/cuda/attention_forward.cu", "> first_ + 16 * m + piece_row(i)", ">= first_ + 16 * m + piece_row(i)"),
    ("models/ops/cuda/attention_forward.cu", "__syncthreads();  // tile t", "// tile t"),
    ("models/ops/cuda/attention_forward.cu", "    wait_for_copies<0>();\n", ""),
    ("models/ops/cuda/attention_forward.cu", "sum_[m][h] * shrink + sum", "sum_[m][h] + sum"),
    ("models/ops/cuda/attention_tiles.cuh", "2 * k + lane / 16", "2 * k + lane / 8 % 2"),
    ("models/ops/cuda/attention_backward_keys.cuh", "index_of(sequence, head_of(step))", "index_of(sequence, first_head)"),
    ("models/ops/cuda/attention_backward_keys.cuh", "      kept.apply(p);\n", ""),
    ("models/ops/cuda/attention_backward_queries.cuh", "if (first_key + 15 > first_)", "if (first_key > first_)"),
    ("models/ops/cuda/attention_plain.cu", "sum[r] * shrink", "sum[r]"),
    ("models/ops/cuda/columns.cu", "narrow<T>(widen(into[c]) + sum)", "narrow<T>(sum)"),
    ("models/ops/cuda/cross_entropy.cu", "    __syncthreads();  // the target's logit has been read\n    become", "    become"),
    ("models/ops/cuda/cross_entropy.cu", "mine.sum *= exponential<T>(mine.highest - highest);", ""),
    ("models/ops/cuda/cuda_backend.cc", "base.data ? 1 : 0", "0"),
    ("models/ops/cuda/elementwise.cu", "widen(raw[k]) * s.scale", "widen(raw[k])"),
    ("models/ops/cuda/embedding_backward.cu", "if (part.slot < 0) sum = load", "sum = load"),
    ("models/ops/cuda/gemm.cc", "b.transposed ? CUBLAS_OP_T", "a.transposed ? CUBLAS_OP_T"),
    ("models/ops/cuda/layer_norm.cu", "if (i < here) squares", "squares"),
    ("models/ops/cuda/rows.cu", "(first_row + places(r)) * columns", "places(r) * columns"),
    ("models/ops/cuda/uploads.cc", "std::memcpy(place.memory, from,", "std::memcpy(place.memory, place.memory,"),
]


def with_bug(text, name, right, wrong):
    if right not in text:
        raise SystemExit(f"{name} no longer contains {right!r}: plant another bug there")
    return text.replace(right, wrong, 1)


def run(command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def main():
    if sys.argv[1:] == ["--check"]:
        for name, right, wrong in MUTANTS:
            with_bug((ROOT / name).read_text(), name, right, wrong)
        return 0
    chosen = [mutant for mutant in MUTANTS if all(part in mutant[0] for part in sys.argv[1:])]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("build", "out", ".git", "__pycache__"))
        run(["cmake", "--preset", "release"], copy)
        for name, right, wrong in chosen:
            text = (copy / name).read_text()
            (copy / name).write_text(with_bug(text, name, right, wrong))
            if run(["cmake", "--build", "--preset", "release"], copy).returncode != 0:
                outcome = "does not build"
            else:
                tests = run(["ctest", "--preset", "release", "--stop-on-failure", "-E", NOT_ASKED], copy)
                outcome = "found" if tests.returncode != 0 else "SURVIVED"
            survivors += outcome != "found"
            print(f"{outcome}: {name}: {right} -> {wrong}", flush=True)
            (copy / name).write_text(text)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
