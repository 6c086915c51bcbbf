#include "parallel/exchange/projected_sum.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "models/optimizers/galore.h"

namespace lockstep {
namespace {

// A matrix of a bucket: its name, its place there, and that of its R among what is sent.
struct Sent {
  std::string name;
  ProjectedMatrix matrix;
  Count at = 0, small_at = 0;
  Projectors projectors = {};
};

// What a bucket sends: the projections, one after the other, and then the rest of its elements.
struct ProjectedLayout {
  std::vector<Sent> matrices;
  std::vector<Range> rest;
  Count small = 0, others = 0;

  ProjectedLayout(const ProjectionSettings& projection, const ExchangedBucket& bucket) {
    for (const Parameter& parameter : bucket.parameters) {
      if (!parameter.hidden.exist()) {
        rest.push_back({parameter.offset, parameter.count});
        others += parameter.count;
        continue;
      }
      const ProjectedMatrix matrix(projection, parameter.hidden);
      matrices.push_back({parameter.name, matrix, parameter.offset, small});
      small += matrix.small();
    }
  }
  Count sent() const { return small + others; }
};

template <typename T>
class ProjectedSum final : public CompressedSum {
 public:
  ProjectedSum(const ProjectionSettings& projection, const std::vector<ExchangedBucket>& buckets,
               Communicator& comm, Device& device)
      : device_(device), row_(static_cast<std::size_t>(projection.rank)) {
    Count most = 0;
    for (const ExchangedBucket& bucket : buckets)
      most = std::max(most, layouts_.emplace_back(projection, bucket).sent());
    sent_ = comm.scratch({.dtype = dtype_of<T>(), .device = &device}, most);
  }

  void take_projectors(const ProjectorsOf& projectors) override {
    for (ProjectedLayout& layout : layouts_)
      for (Sent& sent : layout.matrices) {
        sent.projectors = projectors(sent.name);
        const auto has_all = [](bool is_projected, Slice projector, Count count) {
          return projector.count == (is_projected ? count : 0);
        };
        const auto& [rows, columns, rank, inputs, outputs] = sent.matrix;
        require(has_all(inputs, sent.projectors.inputs, rows * rank) &&
                    has_all(outputs, sent.projectors.outputs, rank * columns),
                fmt::format("{} has no projectors of rank {}", sent.name, rank));
      }
  }

  void run(Communicator& comm, std::size_t number, Slice gradients) override {
    const ProjectedLayout& layout = layouts_[number];
    const Slice sent = sent_.slice(layout.sent(), dtype_of<T>());
    // Without data, only messages travel.
    const bool has_data = device_.stores();
    if (has_data) project(layout, host_span<T>(gradients).data(), host_span<T>(sent).data());
    if (sent.count > 0) all_reduce(comm, sent, ReduceOp::sum);
    if (has_data) project_back(layout, host_span<T>(gradients).data(), host_span<T>(sent).data());
    comm.announce(Operation::all_reduce, gradients, gradients);
  }

  Kept kept(std::size_t) const override { return {}; }
  std::vector<Slice> all_kept() const override { return {}; }

 private:
  static void add_multiple(T* into, T factor, const T* x, Count count) {
    for (Count i = 0; i < count; ++i) into[i] += factor * x[i];
  }
  static T product_of(const T* x, const T* y, Count count) {
    T product = 0;
#pragma omp simd reduction(+ : product)
    for (Count i = 0; i < count; ++i) product += x[i] * y[i];
    return product;
  }
  static const T* data(Slice projector) {
    return projector.count > 0 ? host_span<T>(projector).data() : nullptr;
  }

  // Row i of G Q^T, or of G.
  const T* narrowed(const ProjectedMatrix& matrix, const T* row, const T* q) {
    if (!matrix.outputs) return row;
    for (Count k = 0; k < matrix.rank; ++k)
      row_[static_cast<std::size_t>(k)] = product_of(row, q + k * matrix.columns, matrix.columns);
    return row_.data();
  }
  void project(const ProjectedLayout& layout, const T* all, T* sent) {
    for (const auto& [name, matrix, at, small_at, projectors] : layout.matrices) {
      const T *const p = data(projectors.inputs), *const q = data(projectors.outputs);
      T* const small = sent + small_at;
      const Count columns = matrix.small_columns();
      if (matrix.inputs) std::fill_n(small, matrix.small(), T{0});
      for (Count i = 0; i < matrix.rows; ++i) {
        const T* const row = narrowed(matrix, all + at + i * matrix.columns, q);
        if (matrix.inputs)
          for (Count k = 0; k < matrix.rank; ++k)
            add_multiple(small + k * columns, p[i * matrix.rank + k], row, columns);
        else
          std::copy_n(row, columns, small + i * columns);
      }
    }
    T* others = sent + layout.small;
    for (const auto& [first, count] : layout.rest) others = std::copy_n(all + first, count, others);
  }

  // Row i of P R, or of R.
  const T* widened(const ProjectedMatrix& matrix, Count i, const T* p, const T* small, T* into) {
    const Count columns = matrix.small_columns();
    if (!matrix.inputs) return small + i * columns;
    std::fill_n(into, columns, T{0});
    for (Count k = 0; k < matrix.rank; ++k)
      add_multiple(into, p[i * matrix.rank + k], small + k * columns, columns);
    return into;
  }
  void project_back(const ProjectedLayout& layout, T* all, const T* sent) {
    for (const auto& [name, matrix, at, small_at, projectors] : layout.matrices) {
      const T *const p = data(projectors.inputs), *const q = data(projectors.outputs);
      for (Count i = 0; i < matrix.rows; ++i) {
        T* const row = all + at + i * matrix.columns;
        if (!matrix.outputs) {
          widened(matrix, i, p, sent + small_at, row);
          continue;
        }
        const T* const narrow = widened(matrix, i, p, sent + small_at, row_.data());
        std::fill_n(row, matrix.columns, T{0});
        for (Count k = 0; k < matrix.rank; ++k)
          add_multiple(row, narrow[k], q + k * matrix.columns, matrix.columns);
      }
    }
    const T* others = sent + layout.small;
    for (const auto& [first, count] : layout.rest) {
      std::copy_n(others, count, all + first);
      others += count;
    }
  }

  Device& device_;
  std::vector<ProjectedLayout> layouts_;  // by bucket
  std::vector<T> row_;
  Memory sent_;
};

}  // namespace

std::unique_ptr<CompressedSum> make_projected_sum(const ProjectionSettings& projection, DType dtype,
                                                  const std::vector<ExchangedBucket>& buckets,
                                                  Communicator& comm, Device& device) {
  if (dtype == DType::f64)
    return std::make_unique<ProjectedSum<double>>(projection, buckets, comm, device);
  return std::make_unique<ProjectedSum<float>>(projection, buckets, comm, device);
}

Traffic projected_traffic(const ProjectionSettings& projection, DType dtype,
                          const ExchangedBucket& bucket, int ranks, int rank) {
  const Count sent = ProjectedLayout(projection, bucket).sent(), element = element_bytes(dtype);
  if (sent == 0) return {};
  const Traffic traffic =
      find_algorithm(all_reduce_algorithms(), "all_reduce", "ring")
          .traffic({.ranks = ranks, .count = sent, .element_bytes = element}, rank);
  return {traffic.sent_messages, traffic.sent_elements * element, traffic.received_messages,
          traffic.received_elements * element};
}

Count projected_memory_bytes(const ProjectionSettings& projection, DType dtype,
                             const std::vector<ExchangedBucket>& buckets) {
  Count most = 0;
  for (const ExchangedBucket& bucket : buckets)
    most = std::max(most, ProjectedLayout(projection, bucket).sent());
  return most * element_bytes(dtype);
}

}  // namespace lockstep
