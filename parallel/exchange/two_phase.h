// A sum in two phases: an all-to-all of encoded chunks, and an all-gather of encoded sums.
#pragma once

#include "parallel/exchange/compressed_sum.h"

namespace lockstep {

// Chunks of one rank each, the last ones shorter or empty.
struct TwoPhaseChunks {
  Count count = 0, each = 0;

  TwoPhaseChunks(Count elements, int ranks);
  Range operator[](int rank) const;
};

std::unique_ptr<CompressedSum> make_two_phase(std::string_view codec, bool has_feedback,
                                              DType dtype,
                                              const std::vector<ExchangedBucket>& buckets,
                                              Communicator& comm, Device& device);
Traffic two_phase_traffic(std::string_view codec, Count count, int ranks);
ExchangeMemory two_phase_memory(std::string_view codec, bool has_feedback, DType dtype,
                                const std::vector<ExchangedBucket>& buckets, int ranks, int rank);

}  // namespace lockstep
