#include "parallel/tensor/gathered_input.h"

namespace lockstep {

// lab: place
Slice GatheredInput::place(Tensor& kept, Count rows, DType dtype, Ledger& ledger) const {
  const LayerSplit& split = ranks_.split();
  const bool has_room_for_all = split.by_sequence && split.keeps_gathered;
  ensure(kept, {has_room_for_all ? rows : split.outer_rows(rows), columns_}, dtype, ledger,
         MemoryUse::activations);
  return own(kept);
}

Slice GatheredInput::own(const Tensor& kept) const {
  return ranks_.split().keeps_gathered ? ranks_.own_rows(kept.slice()) : kept.slice();
}
// lab: end

// lab: with_all_rows
void GatheredInput::with_all_rows(const Tensor& kept, const RowsPart& rows, const char* label,
                                  Pass pass, const Product& product, Slice other) const {
  const LayerSplit& split = ranks_.split();
  // lab: solution
  const bool is_there = !split.by_sequence || (split.keeps_gathered && pass == Pass::backward);
  if (is_there) return product(kept.slice(), other, rows);

  Slice all = kept.slice();
  if (!split.keeps_gathered) {
    all = ranks_.scratch(TensorRanks::Use::gathered, rows, columns_, all.dtype);
    const Slice own = ranks_.own_rows(all);
    own.device->copy(own, kept.slice());
  }
  if (!ranks_.overlaps()) {
    ranks_.gather(all, label);
    return product(all, other, rows);
  }
  const Chunks x(all, split.ranks), of_other(other, split.ranks);
  const Count each = rows / split.ranks;
  ranks_.gather_in_parts(all, label, [&](int part) {
    product(x[part], of_other[part], rows.part(part * each, each));
  });
  // lab: given
}
// lab: end

// lab: sum_gradient
void GatheredInput::sum_gradient(Slice dx, const RowsPart& rows, const Product& product,
                                 Slice other, const char* label, const Meanwhile& meanwhile) const {
  const LayerSplit& split = ranks_.split();
  // lab: solution
  if (!split.by_sequence) {
    product(dx, other, rows);
    return ranks_.sum(dx, label, meanwhile);
  }
  const Slice partial = ranks_.scratch(TensorRanks::Use::partial, rows, columns_, dx.dtype);
  if (ranks_.overlaps()) {
    const Chunks gradient(partial, split.ranks), of_other(other, split.ranks);
    const Count each = rows / split.ranks;
    ranks_.sum_in_parts(partial, label, [&](int part) {
      product(gradient[part], of_other[part], rows.part(part * each, each));
    });
  } else {
    product(partial, other, rows);
    ranks_.sum(partial, label);
  }
  dx.device->copy(dx, ranks_.own_rows(partial));
  run(meanwhile);
  // lab: given
}
// lab: end

}  // namespace lockstep
