// The functions of labs/engine.h in a rank's process: each calls the student's.
#include "labs/engine.h"

#include "collectives/all_gather/all_gather.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

LabEngine own;

}  // namespace

void train_with(const LabEngine& engine, const LabSchedules& schedules) {
  own = engine;
  lab_schedules() = schedules;
}

void ring_reduce_scatter(Communicator& comm, Slice data, ReduceOp op, const RingOrder& ring) {
  own.reduce_scatter(comm, data, op, ring);
}
void ring_all_gather(Communicator& comm, Slice data, const RingOrder& ring) {
  own.all_gather(comm, data, ring);
}
std::vector<Bucket> make_buckets(const Parameters& parameters, std::int64_t first_bytes,
                                 std::int64_t bytes) {
  return own.make_buckets(parameters, first_bytes, bytes);
}
void BucketQueue::begin() { (this->*own.begin)(); }
std::vector<std::size_t> BucketQueue::ready(int parameter) { return (this->*own.ready)(parameter); }
std::unique_ptr<ColumnLinear> column_linear(TensorRanks& ranks, Parameters& parameters,
                                            const std::string& name, Count in,
                                            std::vector<Region::Columns> columns) {
  return own.columns(ranks, parameters, name, in, std::move(columns));
}
std::unique_ptr<ColumnLinear> column_linear(TensorRanks& ranks, Parameters& parameters,
                                            const std::string& name, Count in, Count out) {
  return own.column_linear(ranks, parameters, name, in, out);
}
std::unique_ptr<RowLinear> row_linear(TensorRanks& ranks, Parameters& parameters,
                                      const std::string& name, Count in, Count out) {
  return own.row_linear(ranks, parameters, name, in, out);
}
AlongAxes Mesh::place_of(int rank) const { return (this->*own.place_of)(rank); }
int Mesh::rank_at(const AlongAxes& place) const { return (this->*own.rank_at)(place); }
Mesh::Group Mesh::group_of(int rank, AxisSpan along) const {
  return (this->*own.group_of)(rank, along);
}
std::unique_ptr<TrainingRank> make_runtime(RankContext& context, const Plan& plan,
                                           Backend& backend) {
  return own.make_runtime(context, plan, backend);
}

}  // namespace lockstep
