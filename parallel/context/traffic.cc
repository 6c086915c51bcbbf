#include "parallel/context/traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/ops/narrow_types.h"
#include "parallel/context/gather.h"
#include "parallel/context/ring.h"
#include "parallel/context/ulysses.h"

namespace lockstep {
namespace {

// What a rank works on outside the exchanges.
struct Work {
  ContextSplit split;
  Count heads, kv_heads, head_size;
  std::vector<Count> rows;  // of each micro-batch
};
Work work_of(const Plan& plan, int rank) {
  const LayerSplit split = plan.split(rank);
  return {.split = plan.context(rank),
          .heads = split.heads(plan.model.heads),
          .kv_heads = split.kv_heads(plan.model.key_value_heads()),
          .head_size = plan.model.head_size(),
          .rows = plan.rows(rank)};
}

// Returns the elements of a group's keys and values for one rank's heads.
Count block_of(const Work& work, Count rows) {
  const HeadShare share = work.split.heads().share(work.heads, work.kv_heads);
  return rows * work.split.ranks_of_group() * 2 * share.kv_count * work.head_size;
}

// Whether the queries of a group see keys of another one: not those of the first group of a
// contiguous layout, nor of a striped one with one token each.
bool sees_other_groups(TokenLayout layout, Count length) {
  const Positions queries = layout.positions_of_group(length);
  const Count last_query = queries[queries.count() - 1];
  const int own = layout.rank;
  for (layout.rank = 0; layout.rank < layout.ranks; ++layout.rank)
    if (layout.rank != own && layout.positions_of_group(length).up_to(last_query) > 0) return true;
  return false;
}

// The bytes that a rank sends.
std::string context_formula(const ContextSplit& split) {
  std::string formula;
  if (split.groups() > 1)
    formula = split.rings && split.returns_all_hops ? "2(c-1) B beta + c B beta_s"
                                                    : "2(c-1) B beta + (c-1) B beta_s";
  if (split.ranks_of_group() > 1)
    formula += fmt::format("{}heads exchanged by {}", formula.empty() ? "" : " + ",
                           split.ranks_of_group());
  return "layers * micro-batches * (" + formula + ")";
}

// Returns the memory in which ranks exchange blocks and heads, for the largest micro-batch, if any
// layer has a backward pass, or if none has.
Count exchange_bytes(const Plan& plan, const Work& work, bool goes_back) {
  const ContextSplit& split = work.split;
  const HeadShare share = split.heads().share(work.heads, work.kv_heads);
  const Count rows = *std::ranges::max_element(work.rows);
  const Count group_rows = rows * split.ranks_of_group();
  const Count block = block_of(work, rows);
  const Count element = element_bytes(plan.options.dtype),
              statistic = element_bytes(statistics_type(plan.options.dtype));
  const bool exchanges_heads = split.ranks_of_group() > 1;
  const bool in_place = !exchanges_heads && element == statistic;
  const Count width = share.count * work.head_size,
              qkv = (share.count + 2 * share.kv_count) * work.head_size;

  const Count back = goes_back ? 1 : 0;
  Count bytes = back * rows * work.heads * statistic;  // products of dout and out
  if (!in_place) bytes += group_rows * (width + back * qkv) * statistic;
  if (split.groups() > 1) {
    // The result of one block.
    if (sees_other_groups(split.layout, plan.tokens_of_sequence()))
      bytes += group_rows * (width + share.count) * statistic;
    bytes +=
        split.rings
            ? Ring::block_memory(block) * element + back * Ring::gradient_memory(block) * statistic
            : Gather::block_memory(block, split.groups()) * (element + back * statistic);
  }
  if (!exchanges_heads) return bytes;
  const Traffic most =
      heads_for_tokens(rows * work.head_size, split.heads(), work.heads, work.kv_heads, true);
  // The other exchange of its pass: in backward the gradients of `most`, the other way around.
  const Traffic other =
      tokens_for_heads(rows * work.head_size, split.heads(), work.heads, work.kv_heads, goes_back);
  const Traffic statistics =
      heads_for_tokens(rows, split.heads(), work.heads, work.kv_heads, false);
  const Count messages = (std::max(most.sent_elements, other.sent_elements) +
                          std::max(most.received_elements, other.received_elements)) *
                         element;
  const Count wide_messages =
      !goes_back || element == statistic
          ? 0
          : (statistics.sent_elements + statistics.received_elements) * statistic;
  return bytes + rows * (work.heads + 2 * work.kv_heads) * work.head_size * element +  // own qkv
         back * group_rows * width * element +          // gradient of the attention's output
         back * group_rows * share.count * statistic +  // products
         messages + wide_messages;
}

// Returns how often a step runs a layer's attention in forward.
Count forward_attentions(const Plan& plan) {
  return model_options(plan.options).recompute == Recompute::none ? 1 : 2;
}

// Adds the traffic of an optimizer step.
void send_exchanges(Terms& terms, const Plan& plan, const Work& work, int layers, int backward) {
  const ContextSplit& split = work.split;
  const int groups = split.groups(), group = split.group();
  const HeadSplit inside = split.heads();
  // How often a layer's products run in forward.
  const Count products = model_options(plan.options).recompute == Recompute::full ? 2 : 1;
  const Count attentions = forward_attentions(plan);
  Traffic blocks, blocks_back, gradients, heads, heads_back, statistics;
  for (const Count rows : work.rows) {
    const Count block = block_of(work, rows), size = rows * work.head_size;
    const auto scattered = [&](bool with_kv) {
      return heads_for_tokens(size, inside, work.heads, work.kv_heads, with_kv);
    };
    const auto gathered = [&](bool with_kv) {
      return tokens_for_heads(size, inside, work.heads, work.kv_heads, with_kv);
    };
    const Traffic one =
        split.rings ? Ring::traffic(block, groups) : Gather::traffic(block, groups, group);
    blocks += attentions * one;
    blocks_back += one;
    gradients += split.rings ? Ring::gradient_traffic(block, groups, split.returns_all_hops)
                             : Gather::gradient_traffic(block, groups, group);
    heads += products * scattered(true) + attentions * gathered(false);
    heads_back += scattered(false) + gathered(true);
    statistics += heads_for_tokens(rows, inside, work.heads, work.kv_heads, false);
  }
  const Count element = element_bytes(plan.options.dtype),
              statistic = element_bytes(statistics_type(plan.options.dtype));
  terms.send(KeyValues::label, layers * blocks + backward * blocks_back, element);
  terms.send(KeyValues::gradient_label, backward * gradients, statistic);
  terms.send(Ulysses::label, layers * heads + backward * heads_back, element);
  terms.send(Ulysses::label, backward * statistics, statistic);
}

}  // namespace

Terms context_terms(const Plan& plan, int rank, int layers, int backward) {
  Terms terms{.part = PlanPart::context};
  if (plan.length(Axis::cp) == 1) return terms;
  const Work work = work_of(plan, rank);
  const ContextSplit& split = work.split;
  send_exchanges(terms, plan, work, layers, backward);
  terms.bytes_formula = context_formula(split);
  terms.messages_formula = "exchanges of keys, values and heads";
  terms.attentions =
      split.heads().share(work.heads, work.kv_heads).count * layers * forward_attentions(plan);
  terms.attention_pairs = {attention_pairs(split.layout, plan.tokens_of_sequence()) *
                               plan.share(rank).count * terms.attentions,
                           "pairs of a sequence * sequences * heads * layers",
                           !plan.options.documents};
  terms.hold({.use = MemoryUse::communication,
              .bytes = exchange_bytes(plan, work, backward > 0),
              .exact = plan.has_even_batches()});
  return terms;
}

}  // namespace lockstep
