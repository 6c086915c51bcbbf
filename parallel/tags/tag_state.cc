#include "parallel/tags/tag_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "models/gpt/adapter_files.h"

namespace lockstep {
namespace {

// Inside an operation or a collective, operations of the device belong to it.
thread_local int suspended = 0;
// The work that this thread does for a stream.
struct OnThread {
  const void* stream;
  TagState::Work work;
};
thread_local std::optional<OnThread> work_of_thread;

}  // namespace

void TagState::observe(const Parameters& parameters, ParameterSet set) {
  observed_.push_back({&parameters, set, static_cast<int>(of_parameters_.size())});
  const std::vector<Parameter> whole = whole_with_adapters(plan_.model, lora_config(plan_.options));
  for (const Parameter& parameter : parameters.list())
    of_parameters_.push_back(tag_of(parameter, whole));
}

Tag TagState::tag_of(const Parameter& parameter, const std::vector<Parameter>& whole) const {
  const auto of = std::ranges::find(whole, parameter.whole_name(), &Parameter::name);
  Count columns = 0;
  for (const Region::Columns& part : parameter.region.columns) columns += part.range.count;
  const Placement& placement = parameter.region.columns.front().placement;
  Tag tag;
  for (std::size_t axis = 0; axis < axes_.count(); ++axis)
    if (axes_[axis].kind == TagAxis::Kind::layers)
      tag[axis] = placement[axes_[axis].axis].placed != Placed::sharded ? Along::replicated
                  : columns < parameter.packing.bytes(of->shape.back()) ? Along::columns
                                                                        : Along::rows;
  return tag;
}

void TagState::suspend() { ++suspended; }
void TagState::resume() { --suspended; }

void TagState::change(std::function<void()> how) {
  if (suspended > 0) return;
  if (work_of_thread)
    work_of_thread->work.changes.push_back(std::move(how));
  else if (std::this_thread::get_id() == thread_)
    how();
}

void TagState::begin_work(const void* stream, std::int64_t number) {
  const std::lock_guard lock(mutex_);
  if (number == 0) works_[stream].clear();  // of an earlier stream at this address
  work_of_thread = OnThread{.stream = stream, .work = {.number = number, .changes = {}}};
}

void TagState::end_work() {
  const std::lock_guard lock(mutex_);
  works_[work_of_thread->stream].push_back(std::move(work_of_thread->work));
  work_of_thread.reset();
}

void TagState::waited(const void* stream, std::int64_t number) {
  std::vector<Work> done;
  {
    const std::lock_guard lock(mutex_);
    std::vector<Work>& works = works_[stream];
    const auto end = std::ranges::find_if(works, [&](const Work& w) { return w.number > number; });
    done.assign(std::make_move_iterator(works.begin()), std::make_move_iterator(end));
    works.erase(works.begin(), end);
  }
  for (Work& work : done)
    for (std::function<void()>& how : work.changes) change(std::move(how));
}

void TagState::released(const std::byte* memory, Count bytes) {
  if (std::this_thread::get_id() == thread_) tags_.forget(memory, bytes);
}

void TagState::copied(Slice into, Slice from) {
  change([this, into, from] {
    if (is_tagged(into)) tags_.copy(into, from);
  });
}

void TagState::zeroed(Slice data) {
  change([this, data] {
    if (is_tagged(data)) tags_.forget(data.data, data.bytes());
  });
}

void TagState::added(Slice into, Slice from) {
  change([this, into, from] {
    operation_ = "add";
    if (is_tagged(into))
      for (const TagMap::Piece& piece : tags_.pieces(from))
        add(into.part(piece.first, piece.count), piece.tag);
  });
}

void TagState::begin_operation(const char* name) {
  operation_ = name;
  suspend();
}

const TagState::Memory* TagState::memory_of(Slice slice) {
  std::int64_t changes = 0;
  for (const Observed& of : observed_) changes += of.parameters->placements();
  if (memory_changes_ != changes) {
    memory_changes_ = changes;
    memory_.clear();
    const auto add = [&](Slice of, int parameter, bool is_gradient) {
      memory_[of.data] = {of.data + of.bytes(), parameter, is_gradient};
    };
    for (const auto& [parameters, set, first] : observed_)
      for (int i = 0; i < static_cast<int>(parameters->list().size()); ++i) {
        if (parameters->has_value(i)) add(parameters->value(i), first + i, false);
        if (parameters->has_gradient(i)) add(parameters->gradient(i), first + i, true);
      }
  }
  auto found = memory_.upper_bound(slice.data);
  if (found == memory_.begin()) return nullptr;
  --found;
  return slice.data < found->second.end ? &found->second : nullptr;
}

Tag TagState::joined(const std::vector<TagMap::Piece>& pieces) const {
  Tag all;
  for (const TagMap::Piece& piece : pieces) {
    all.parameter = piece.tag.parameter;
    all.made_by = piece.tag.made_by;
    for (std::size_t axis = 0; axis < axes_.count(); ++axis)
      all[axis] = std::max(all[axis], piece.tag[axis]);
  }
  return all;
}

Tag TagState::read(Slice slice, const char* role) {
  if (!is_tagged(slice)) return {};
  ++checked_;
  Tag tag = joined(tags_.pieces(slice));
  const Memory* const memory = memory_of(slice);
  if (!memory || memory->is_gradient) return tag;
  const Tag& of = of_parameter(memory->parameter);
  for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
    const TagAxis::Kind kind = axes_[axis].kind;
    if (kind == TagAxis::Kind::layers) tag[axis] = of[axis];
    if (kind == TagAxis::Kind::layers || kind == TagAxis::Kind::stages) continue;
    if (tag[axis] == Along::rows)
      fail(axis,
           fmt::format("{} reads {}, of which this rank holds only a shard", operation_,
                       name_of(slice, role, tag)),
           "all-gather it");
    tag[axis] = Along::replicated;
  }
  return tag;
}

Tag TagState::without_rows(Slice gradient, Tag tag) {
  const Memory* const memory = memory_of(gradient);
  for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
    tag[axis] = row_sum_of(tag[axis]);
    if (!memory || axes_[axis].kind != TagAxis::Kind::layers) continue;
    const Region& region = parameter(memory->parameter).region;
    const Placed placed = region.columns.front().placement[axes_[axis].axis].placed;
    tag[axis] = placed == Placed::partial ? Along::partial : of_gradient(gradient)[axis];
  }
  return tag;
}

Tag TagState::read(const Matrix& matrix, const char* role) {
  Tag tag = read(matrix.slice, role);
  if (matrix.transposed)
    for (Along& along : tag.along) along = transposed(along);
  return tag;
}

namespace {

std::string origin(const Tag& tag) {
  return *tag.made_by == '\0' ? "" : fmt::format(" (made by {})", tag.made_by);
}

std::string hint_for(Along a, Along b) {
  if (a == Along::partial || b == Along::partial) return "all-reduce or reduce-scatter it first";
  return "all-gather one of them first";
}

}  // namespace

Tag TagState::combine(Rule rule, const Tag& a, const Tag& b, const char* what) {
  Tag result = a;
  for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
    const std::optional<Along> along = rule(a[axis], b[axis]);
    if (!along)
      fail(
          axis,
          fmt::format("{}: in {} one is {}{} and the other one {}{}", operation_, what,
                      lockstep::name_of(a[axis]), origin(a), lockstep::name_of(b[axis]), origin(b)),
          hint_for(a[axis], b[axis]));
    result[axis] = *along;
  }
  return result;
}

void TagState::refuse(const Tag& tag, const char* role, bool (*is_wrong)(const TagAxis&, Along)) {
  for (std::size_t axis = 0; axis < axes_.count(); ++axis)
    if (is_wrong(axes_[axis], tag[axis]))
      fail(axis,
           fmt::format("{}: {} is {}{}", operation_, role, lockstep::name_of(tag[axis]),
                       origin(tag)),
           hint_for(tag[axis], tag[axis]));
}

void TagState::write(Slice slice, Tag tag) {
  if (!is_tagged(slice)) return;
  tag.made_by = operation_;
  tag.parameter = -1;
  tags_.set(slice, tag);
}

void TagState::add(Slice slice, Tag tag) {
  if (!is_tagged(slice)) return;
  if (*tag.made_by == '\0') tag.made_by = operation_;
  const Memory* const memory = memory_of(slice);
  if (!memory || !memory->is_gradient) return add_to(slice, tag);
  tag.parameter = memory->parameter;
  const Region& region = parameter(memory->parameter).region;
  for (std::size_t axis = 0; axis < axes_.count(); ++axis)
    if (axes_[axis].kind == TagAxis::Kind::stages &&
        region.columns.front().placement[axes_[axis].axis].placed == Placed::partial)
      tag[axis] = Along::partial;
  const auto is_shared = [](const Region::Columns& columns) {
    return columns.placement[Axis::tp].placed == Placed::partial;
  };
  if (std::ranges::all_of(region.columns, is_shared) ||
      std::ranges::none_of(region.columns, is_shared))
    return add_to(slice, tag);
  // Where ranks share columns of queries, keys and values, each has a part of their gradient.
  Count place = 0;
  for (Count row = 0; row < region.rows.count; ++row)
    for (const Region::Columns& columns : region.columns) {
      Tag of_columns = tag;
      for (std::size_t axis = 0; axis < axes_.count(); ++axis)
        if (axes_[axis].kind == TagAxis::Kind::layers && is_shared(columns) &&
            axes_[axis].stride < columns.placement[Axis::tp].ranks)
          of_columns[axis] = Along::partial;
      add_to(slice.part(place, columns.range.count), of_columns);
      place += columns.range.count;
    }
}

void TagState::add_to(Slice slice, const Tag& tag) {
  Count end = 0;
  for (const TagMap::Piece& piece : tags_.pieces(slice)) {
    tags_.set(slice.part(end, piece.first - end), tag);
    Tag sum = combine(sum_of, piece.tag, tag, "the sum");
    sum.parameter = tag.parameter;
    end = piece.first + piece.count;
    tags_.set(slice.part(piece.first, piece.count), sum);
  }
  tags_.set(slice.part(end, slice.count - end), tag);
}

const TagState::Observed& TagState::set_of(int parameter) const {
  return *std::ranges::find_if(observed_.rbegin(), observed_.rend(),
                               [&](const Observed& of) { return of.first <= parameter; });
}

const Parameter& TagState::parameter(int number) const {
  const Observed& of = set_of(number);
  return of.parameters->list()[static_cast<std::size_t>(number - of.first)];
}

bool TagState::is_divided(int parameter, std::size_t axis) const {
  return parameter >= 0 && set_of(parameter).set == ParameterSet::experts &&
         axes_[axis].varies_by_tokens() && axes_[axis].stride < plan_.expert_ranks();
}

std::string TagState::name_of(Slice slice, const char* role, const Tag& tag) {
  const Memory* const memory = memory_of(slice);
  const int parameter = memory ? memory->parameter : tag.parameter;
  if (parameter < 0) return role;
  const std::string& name = this->parameter(parameter).name;
  return memory && !memory->is_gradient ? name : "the gradient of " + name;
}

void TagState::fail(std::size_t axis, const std::string& what, const std::string& hint) const {
  const std::string where =
      axis < axes_.count() ? fmt::format(" along {}", lockstep::name_of(axes_[axis].axis)) : "";
  throw Error(ErrorKind::wrong_result, what + where,
              {.rank = rank_, .size = plan_.ranks, .hint = hint});
}

}  // namespace lockstep
