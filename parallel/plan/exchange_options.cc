// The rules for plans whose replicas compress gradients.
#include <fmt/format.h>

#include "collectives/base/error.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/plan/make_plan.h"

namespace lockstep {

void check_exchange(const Plan& plan, const TrainOptions& given) {
  const TrainOptions& o = plan.options;
  if (o.exchange == "none") return;
  const std::string flag = fmt::format("--exchange {}", o.exchange);
  const auto refuse = [&](bool is_wrong, const std::string& what, const char* hint) {
    require(!is_wrong, fmt::format("{} {}", flag, what), hint);
  };
  refuse(given.reduce_dtype && (plan.compresses_gradients() || *given.reduce_dtype != DType::bf16),
         fmt::format("with --reduce-dtype {}", name_of(*o.reduce_dtype)),
         "give one of the two: each says what gradients are on the wire");
  if (!plan.compresses_gradients()) return;
  const ExchangeMethod method = exchange_from_text(o.exchange);
  refuse(plan.has_servers(), "with parameter servers", "train ddp, or another plan with replicas");
  refuse(plan.zero_stage() > 0, fmt::format("with ZeRO stage {}", plan.zero_stage()),
         "its ranks reduce each gradient to one of them: train ddp, or use --exchange bf16");
  if (!method.has_feedback()) return;
  refuse(o.dtype == DType::f16, "with --dtype f16",
         "a gradient that overflows would stay in what is kept for the next step: use bf16");
  refuse(
      !o.checkpoint.empty() || !o.resume.empty(),
      o.resume.empty() ? "with --checkpoint" : "with --resume",
      "a checkpoint does not hold what ranks keep for the next step: use --exchange int8, mxfp8 or "
      "signsgd");
}

}  // namespace lockstep
