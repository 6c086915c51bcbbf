// Keeps the inputs that full recomputation needs, between a forward pass and its backward pass. All
// ranks that split the layers have the same inputs. So each may keep only a part, and gather the
// others' parts again before backward (ZeRO-R's Pa); parts may also lie in a second tier of memory.
//
//   a rank of t, for each kept input of E bytes    held                      sent for backward
//
//   whole                                          E                         0
//   parts                                          E/t                       (t-1)/t E
//   offloaded parts                                0, and 2 E/t for all      (t-1)/t E
//                                                  inputs together
//
// Rajbhandari et al., "ZeRO", 2020, section 6.1.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "models/gpt/input_store.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"
#include "parallel/rank/tier.h"
#include "parallel/tensor/ranks.h"

namespace lockstep {

class KeptInputs final : public InputStore {
 public:
  // `tensor` are the ranks of `split`. All arguments must outlive it.
  KeptInputs(RankContext& context, const Plan& plan, Communicator& tensor, TensorRanks& split);

  int keep(Slice input) override;
  void bring_back(Slice input, int number, std::optional<int> next) override;
  // Bytes moved from and to the second tier so far.
  TierTraffic traffic() const { return tier_ ? tier_->traffic() : TierTraffic{}; }

 private:
  // A part on its way to the tier or back.
  struct Buffer {
    Tensor part;
    std::optional<int> number;  // of the input that is being read, or has been
    std::optional<Tier::Handle> last;
  };

  bool is_cut() const { return kept_ != KeptInput::whole; }
  Slice own_part(Slice input) const;
  int new_number();
  Count place(int number) const { return number * slot_bytes_; }
  Buffer& free_buffer();
  void wait(const Buffer& buffer);
  // Begins to read a part of `count` elements, unless it is being read already.
  Buffer& fetch(int number, Count count);

  Ledger& ledger_;
  TensorRanks& split_;
  const KeptInput kept_;
  Count slot_bytes_ = 0;       // of a part in the tier
  std::vector<Tensor> parts_;  // by number, unless the tier has them
  std::vector<int> free_;      // numbers
  int numbers_ = 0;
  std::array<Buffer, 2> buffers_;
  std::size_t turn_ = 0;
  std::optional<Tier> tier_;  // its thread ends before the buffers
};

// The formula of the parts' traffic, which the layers count, and of parts that are offloaded the
// traffic with the tier and the memory for it. The activations count the parts that a rank holds.
Terms kept_inputs_terms(const Plan& plan, int rank, bool computes_on_host);

}  // namespace lockstep
