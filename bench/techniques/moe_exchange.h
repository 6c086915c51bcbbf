// The exchanges of a rank in the benchmark of dispatchers, by any of its methods.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/techniques/moe.h"
#include "bench/techniques/moe_choices.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/expert/ranks.h"

namespace lockstep {

// What all ranks of a point choose, and how rows travel.
struct MoeWorld {
  ExpertConfig experts;
  int tokens = 0;
  Count columns = 0;
  DType dtype = DType::bf16;
  std::vector<MoeChoices> choices;  // by rank, without dropped ones

  Count row_bytes() const { return columns * element_bytes(dtype); }
};

// All ranks create it at the same time. `world` must outlive it.
class MoeExchange {
 public:
  MoeExchange(const std::string& method, RankContext& context, const MoeWorld& world);

  // With the choices and weights of routers, if the method needs them.
  void counts();
  void dispatch();
  void combine();
  // Of dispatch(), in rows; after counts().
  std::vector<DispatchLeg> expected() const;

 private:
  // Of tokens and of experts.
  std::pair<Slice, Slice> rows();

  Ledger& ledger_;
  const MoeWorld& world_;
  const DispatchMethod& method_;
  ExpertGroup group_;
  ExpertRanks ranks_;
  Routing routing_;
  Tensor of_tokens_, of_experts_;
};

// The time of dispatch() by its closed form; none where it is not exact, because pairs of ranks have
// different numbers of rows.
std::optional<double> expected_dispatch_seconds(const std::string& method, const MoeWorld& world,
                                                int ranks_per_node, const LinkModel& links);

}  // namespace lockstep
