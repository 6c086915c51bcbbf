// Sums of gradients over replicas with fewer bytes than they have. All ranks get the same bits.
//
//   W ranks, n gradients of a bucket, e(c) encoded bytes of a chunk of c = n/W rounded up to a whole
//   block (codec.h); beta bytes of a gradient, in memory
//
//                bytes sent per rank and bucket             kept between steps
//   onebit       2 (W-1) e(c)                               beta (n + c)
//   signsgd      2 (W-1) e(c)                               0
//   int8         2 (W-1) e(c)                               0
//   mxfp8        2 (W-1) e(c)                               0
//   topk:F       (W-1) k (4 + beta), k = ceil(F n)          beta n
//   powersgd:R   2 (W-1)/W beta (sum of R (m+q) + rest)     beta (n + sum of R q)   matrices m x q
//   galore       2 (W-1)/W beta (sum of projections + rest) 0                       projected_sum.h
//
// The first four reduce in two phases, so that each number is rounded twice, whatever W is: a rank gets
// everybody's chunk, decodes and adds up, and sends the sum, encoded again. What rounding took away from
// a gradient is added to the next one where the method's paper says so (error feedback): then at any time
//
//   sum of all gradients - sum of all results = sum over ranks of what they keep
//
// qgz:B is for sharded gradients alone: see compressed_scatter.h.
//
// Tang et al., "1-bit Adam", 2021; Bernstein et al., "signSGD", 2018; Lin et al., "Deep gradient
// compression", 2018; Vogels et al., "PowerSGD", 2019.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/communicator.h"
#include "models/optimizers/galore.h"

namespace lockstep {

// A method by name, with its number: the rank of powersgd, the share of topk, the bits of qgz.
struct ExchangeMethod {
  std::string name;
  double number = 0;
  ProjectionSettings projection = {};  // of galore

  bool operator==(const ExchangeMethod&) const = default;
  // Whether it keeps something between steps.
  bool has_feedback() const;
  // Whether an overflow in the gradients is visible in their sum.
  bool shows_overflow() const;
  // Whether it adds up within nodes, then between them, and so only reduces each gradient to the rank that
  // owns it.
  bool adds_by_node() const;
  // The codec that it rounds with (see codec.h) and keeps nothing; empty: it does more than that.
  std::string_view codec() const;
};
// From "powersgd:2", without the projection of galore. Throws Error (bad_input) naming what there is.
ExchangeMethod exchange_from_text(std::string_view text);
// "NAME, what it does" of each, for the help.
std::string exchange_summaries();

// A part of a flat buffer that is exchanged at once, and the parameters in it, with offsets in it.
struct ExchangedBucket {
  Range range;
  std::vector<Parameter> parameters;
};

// Those of a matrix, by the name of its parameter.
using ProjectorsOf = std::function<Projectors(const std::string& name)>;

class CompressedSum {
 public:
  virtual ~CompressedSum() = default;
  // To call before the first run. Only galore keeps them: their memory must outlive it.
  virtual void take_projectors(const ProjectorsOf&) {}
  // `gradients` of bucket `number` become the sum over the ranks. On a device that stores nothing, only
  // messages travel.
  virtual void run(Communicator& comm, std::size_t number, Slice gradients) = 0;
  // What this rank keeps of bucket `number`: of its own gradients, and of the chunk that it adds up.
  // Empty if the method keeps nothing.
  struct Kept {
    Slice own, chunk;
  };
  virtual Kept kept(std::size_t number) const = 0;
  // Everything that the next sums need: what is kept of all buckets, and where the method starts from.
  virtual std::vector<Slice> all_kept() const = 0;
};
// Throws Error (bad_input) if the device is a GPU: the processor encodes gradients.
void require_host(const ExchangeMethod& method, const Device& device);
// Of gradients of f32 or f64 in the memory of `device`: the host's, or one that stores nothing. `comm`
// records its memory. Throws like require_host().
std::unique_ptr<CompressedSum> make_compressed_sum(const ExchangeMethod& method, DType dtype,
                                                   const std::vector<ExchangedBucket>& buckets,
                                                   Communicator& comm, Device& device);

// The closed forms, in bytes: what a rank sends and receives for a bucket, and what it holds for all.
Traffic exchange_traffic(const ExchangeMethod& method, DType dtype, const ExchangedBucket& bucket,
                         int ranks, int rank);
struct ExchangeMemory {
  Count kept = 0, work = 0;  // state between steps, and buffers of a sum
};
ExchangeMemory exchange_memory(const ExchangeMethod& method, DType dtype,
                               const std::vector<ExchangedBucket>& buckets, int ranks, int rank);
// Scratch of the collectives that it uses, for one bucket.
Count exchange_scratch_bytes(const ExchangeMethod& method, DType dtype,
                             const ExchangedBucket& bucket, int ranks, int rank);
std::string exchange_formula(const ExchangeMethod& method);

}  // namespace lockstep
