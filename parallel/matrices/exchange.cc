// Brings directions to the ranks that own matrices, and back.
#include <algorithm>

#include "collectives/all_to_all_v/all_to_all_v.h"
#include "models/ops/narrow_types.h"
#include "parallel/matrices/owners.h"

namespace lockstep {
namespace {

class OwnersExchange final : public MatrixExchange {
 public:
  OwnersExchange(MatrixOwners owners, std::unique_ptr<Communicator> ranks, DType dtype,
                 Backend& backend, Ledger& ledger)
      : owners_(std::move(owners)),
        ranks_(std::move(ranks)),
        backend_(backend),
        received_({owners_.most_received()}, dtype, ledger, MemoryUse::communication) {
    ranks_->set_label(matrices_label);
  }

  const std::vector<Round>& rounds() const override { return owners_.rounds(); }

  void gather(std::size_t round, Slice pieces, Slice whole) override {
    const auto [to_owners, of_own] = owners_.counts(round);
    const Slice received = received_of(of_own);
    all_to_all_v(*ranks_, received, pieces, {.in = to_owners, .out = of_own});
    for_each_box(round, received, whole,
                 [&](const Matrix& there, const Matrix& here) { backend_.copy(there, here, 0); });
  }

  void scatter(std::size_t round, Slice whole, Slice pieces) override {
    const auto [to_owners, of_own] = owners_.counts(round);
    const Slice received = received_of(of_own);
    for_each_box(round, received, whole,
                 [&](const Matrix& there, const Matrix& here) { backend_.copy(here, there, 0); });
    all_to_all_v(*ranks_, pieces, received, {.in = of_own, .out = to_owners});
  }

 private:
  Slice received_of(const std::vector<Count>& of_own) const {
    Count all = 0;
    for (const Count count : of_own) all += count;
    return received_.slice().first(all);
  }

  // Calls use(elements in the whole matrix, the same elements as received).
  template <typename Use>
  void for_each_box(std::size_t round, Slice received, Slice whole, Use use) const {
    if (!owners_.rounds()[round].own) return;
    const UnevenChunks of_holders(received, owners_.counts(round).of_own);
    for (std::size_t holder = 0; holder < owners_.ranks().size(); ++holder)
      for (const auto& [name, box, place, stride] : owners_.boxes_of_own(round, holder)) {
        const Slice piece = of_holders[static_cast<int>(holder)];
        const Count rows = box.rows.count, columns = box.columns.count;
        Matrix here(piece.part(place, (rows - 1) * stride + columns), rows, columns);
        here.stride = stride;
        const Count width = owners_.columns_of_own(round);
        const Matrix all(whole, whole.count / width, width);
        use(all.rows_from(box.rows.first, rows).columns_from(box.columns.first, columns), here);
      }
  }

  const MatrixOwners owners_;
  std::unique_ptr<Communicator> ranks_;
  Backend& backend_;
  Tensor received_;
};

}  // namespace

std::unique_ptr<MatrixExchange> make_matrix_exchange(const Plan& plan, Communicator& world,
                                                     const Parameters& parameters, ParameterSet set,
                                                     Backend& backend, Ledger& ledger) {
  if (!has_whole_matrices(plan, parameters)) return nullptr;
  MatrixOwners owners(plan, world.rank(), set);
  if (owners.ranks().size() == 1) return nullptr;
  auto ranks = world.subgroup(owners.ranks());
  return std::make_unique<OwnersExchange>(std::move(owners), std::move(ranks),
                                          statistics_type(plan.options.dtype), backend, ledger);
}

}  // namespace lockstep
