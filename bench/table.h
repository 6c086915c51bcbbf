// Prints measurements as nccl-tests does, a line for a size and algorithm, and keeps them as Google
// Benchmark's JSON.
#pragma once

#include <benchmark/benchmark.h>

#include <sstream>
#include <string>

#include "bench/all_reduce.h"

namespace lockstep {

class BenchTable final : public benchmark::BenchmarkReporter {
 public:
  // `copy_bound` is what copy_bytes_per_second() measured.
  BenchTable(const BenchOptions& options, int ranks, double copy_bound);

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;
  std::string json() const { return text_.str(); }

 private:
  const BenchOptions& options_;
  int ranks_;
  double copy_bound_;
  std::ostringstream text_;
  benchmark::JSONReporter writer_;
};

}  // namespace lockstep
