#include "parallel/checkpoint/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "models/ops/narrow_types.h"
#include "parallel/checkpoint/index_file.h"
#include "parallel/checkpoint/own_numbers.h"

namespace lockstep {
namespace {

// State `number` of stored_states().
Slice part_of(const StateGroup& group, std::size_t number) {
  if (number > 0) return group.states[number - 1];
  return group.master.device ? group.master : group.values;
}

// The place of an inner box's first element in a box whose elements lie row by row.
Count place_in(const Box& holder, const Box& inner) {
  return (inner.rows.first - holder.rows.first) * holder.columns.count + inner.columns.first -
         holder.columns.first;
}

// Copies some rows of a placed box between memory without gaps and `flat`, which begins with element
// `begin` of the flat buffer.
void copy_rows(const PlacedBox& placed, const Box& rows, Slice flat, Count begin, Slice dense,
               bool into_flat) {
  const Count width = rows.columns.count;
  const Count first =
      placed.place - begin + (rows.rows.first - placed.box.rows.first) * placed.stride;
  const auto copy = [&](Slice there, Slice here) {
    flat.device->copy(into_flat ? there : here, into_flat ? here : there);
  };
  if (width == placed.stride) return copy(flat.part(first, dense.count), dense);
  for (Count row = 0; row < rows.rows.count; ++row)
    copy(flat.part(first + row * placed.stride, width), dense.part(row * width, width));
}

std::string_view bytes_of(Slice on_host) {
  return {reinterpret_cast<const char*>(on_host.data), static_cast<std::size_t>(on_host.bytes())};
}

// The parameter to which an element of a flat buffer belongs.
const Parameter& parameter_at(std::span<const Parameter> list, Count element) {
  return *std::prev(std::ranges::upper_bound(list, element, {}, &Parameter::offset));
}

}  // namespace

RankPart::RankPart(std::vector<TrainingState> sets, const OptimizerSettings& settings,
                   const WholeBoxes& whole, int rank)
    : whole_(whole) {
  file_.name = file_name(rank);
  for (const TrainingState& state : sets) {
    add_matrices(state);
    for (Optimizer* optimizer : state.optimizers) {
      const Range all = optimizer->range();
      const Parts shares(all.count, state.copies);
      const Range own{all.first + shares.offset(state.copy), shares[state.copy]};
      Piece& piece = pieces_.emplace_back(optimizer, state.parameters, own);
      piece.boxes = boxes_in(piece, own);
      for (const PlacedBox& placed : piece.boxes) {
        piece.first_tensors.push_back(file_.tensors.size());
        for (const std::string_view stored :
             stored_states(settings, parameter_at(optimizer->list(), placed.place)))
          file_.add({.parameter = placed.parameter,
                     .state = stored,
                     .box = placed.box,
                     .dtype = statistics_type(state.parameters->dtype())});
      }
    }
  }
  for (std::size_t set = 0; set < sets.size(); ++set)
    for (const auto& [name, numbers] : sets[set].own) {
      dense_.push_back({numbers, file_.tensors.size()});
      file_.add({.parameter = own_name(rank, set, name),
                 .state = own_state,
                 .box = {{0, 1}, {0, numbers.count}},
                 .dtype = numbers.dtype});
    }
}

void RankPart::add_matrices(const TrainingState& state) {
  if (!state.matrices) return;
  for (const auto& [matrix, held, memory] : state.matrices->states()) {
    if (writer_of_matrix(matrix, state.copies) != state.copy) continue;
    dense_.push_back({memory, file_.tensors.size()});
    file_.add({.parameter = state.matrices->parameter(matrix).whole_name(),
               .state = held.name,
               .box = {{0, held.rows}, {0, held.columns}},
               .dtype = memory.dtype});
  }
}

std::vector<PlacedBox> RankPart::boxes_in(const Piece& piece, Range range) const {
  return boxes_of(piece.optimizer->list(), range, whole_, piece.parameters);
}

void RankPart::copy(const TakeElements& take) const {
  std::vector<std::byte> memory;
  for (const Piece& piece : pieces_)
    piece.optimizer->visit(StateAccess::read, [&](const StateGroup& group) {
      const Count begin = piece.optimizer->range().first + group.range.first;
      const Range own = intersection(piece.range, Range{begin, group.range.count});
      // Groups may end inside boxes.
      for (const PlacedBox& placed : boxes_in(piece, own)) {
        const auto holder = std::ranges::find_if(piece.boxes, [&](const PlacedBox& box) {
          return box.parameter == placed.parameter &&
                 intersection(box.box, placed.box) == placed.box;
        });
        const std::size_t tensor =
            piece.first_tensors[static_cast<std::size_t>(holder - piece.boxes.begin())];
        for (std::size_t number = 0; number < 1 + group.states.size(); ++number) {
          const Slice flat = part_of(group, number);
          in_blocks(placed.box, [&](const Box& block) {
            memory.resize(static_cast<std::size_t>(block.count() * element_bytes(flat.dtype)));
            const Slice dense{memory.data(), block.count(), flat.dtype, &host_device()};
            copy_rows(placed, block, flat, begin, dense, false);
            take(tensor + number, place_in(holder->box, block), dense);
          });
        }
      }
    });
  for (const DensePiece& piece : dense_)
    in_row(piece.numbers, [&](Count first, Slice part) {
      memory.resize(static_cast<std::size_t>(part.bytes()));
      const Slice dense{memory.data(), part.count, part.dtype, &host_device()};
      part.device->copy(dense, part);
      take(piece.tensor, first, dense);
    });
}

namespace {

std::vector<TensorEntry> entries_of(const StoredFile& file) {
  std::vector<TensorEntry> entries;
  for (const StoredBox& stored : file.tensors)
    entries.push_back({.name = stored.tensor_name(),
                       .dtype = stored.dtype,
                       .shape = {stored.box.rows.count, stored.box.columns.count}});
  return entries;
}

}  // namespace

FileWriter::FileWriter(const std::string& folder, StoredFile& file)
    : file_(file), writer_(std::filesystem::path(folder) / file.name, entries_of(file)) {}

void FileWriter::write(std::size_t tensor, Count first, Slice values) {
  StoredBox& stored = file_.tensors[tensor];
  writer_.write(tensor, first, values);
  Checksum& sum = checksums_[tensor];
  sum.add(bytes_of(values));
  if (first + values.count < stored.box.count()) return;
  stored.checksum = sum.value();
  checksums_.erase(tensor);
}

void FileWriter::finish() {
  writer_.finish();
  file_.header_checksum = writer_.header_checksum();
}

CheckpointReader::CheckpointReader(std::string folder, const CheckpointIndex& index)
    : folder_(std::move(folder)), index_(index) {
  for (std::size_t f = 0; f < index.files.size(); ++f)
    for (const StoredBox& stored : index.files[f].tensors)
      sources_[{stored.parameter, stored.state}].push_back({f, &stored});
}

const SafetensorsFile& CheckpointReader::open(std::size_t number) {
  Opened& opened = opened_[number];
  if (!opened.file) {
    opened.file = std::make_unique<SafetensorsFile>(std::filesystem::path(folder_) /
                                                    index_.files[number].name);
    for (const TensorEntry& entry : opened.file->tensors()) opened.entries[entry.name] = &entry;
  }
  return *opened.file;
}

const TensorEntry& CheckpointReader::entry(std::size_t number, const StoredBox& stored) {
  const SafetensorsFile& file = open(number);
  const auto found = opened_[number].entries.find(stored.tensor_name());
  const bool is_right =
      found != opened_[number].entries.end() && found->second->dtype == stored.dtype &&
      found->second->shape == std::vector{stored.box.rows.count, stored.box.columns.count};
  require(is_right,
          fmt::format("{}: no tensor '{}' as in {}", file.path(), stored.tensor_name(), index_name),
          "the checkpoint is damaged; use another one");
  return *found->second;
}

void CheckpointReader::read(const std::string& parameter, std::string_view state, const Box& box,
                            Slice into) {
  for (const Source& source : sources_.at({parameter, state})) {
    const Box& there = source.stored->box;
    const std::optional<Box> both = intersection(there, box);
    if (!both) continue;
    // Rows that are whole in the file and in memory follow each other in both.
    const bool is_one_run = both->columns == there.columns && both->columns == box.columns;
    const Count rows = is_one_run ? both->rows.count : 1;
    const TensorEntry& tensor = entry(source.file, *source.stored);
    for (Count row = 0; row < both->rows.count; row += rows) {
      const Box run{{both->rows.first + row, rows}, both->columns};
      open(source.file)
          .read_part(tensor, place_in(there, run), into.part(place_in(box, run), run.count()));
      bytes_read_ += run.count() * element_bytes(tensor.dtype);
    }
  }
}

void CheckpointReader::restore(const TrainingState& state, const WholeBoxes& whole) {
  std::vector<std::byte> memory;
  for (Optimizer* optimizer : state.optimizers) {
    optimizer->visit(StateAccess::change, [&](const StateGroup& group) {
      const Count begin = optimizer->range().first + group.range.first;
      std::size_t number = 0;
      for (const std::string_view stored : index_.states) {
        if (group.values.count == 0 ||
            !is_stored(index_.optimizer, stored, parameter_at(optimizer->list(), begin)))
          continue;
        const Slice flat = part_of(group, number++);
        flat.device->zero(flat);  // the padding
        for (const PlacedBox& placed :
             boxes_of(optimizer->list(), {begin, flat.count}, whole, nullptr))
          in_blocks(placed.box, [&](const Box& block) {
            memory.resize(static_cast<std::size_t>(block.count() * element_bytes(flat.dtype)));
            const Slice dense{memory.data(), block.count(), flat.dtype, &host_device()};
            read(placed.parameter, stored, block, dense);
            copy_rows(placed, block, flat, begin, dense, true);
          });
      }
      if (group.master.device) convert(group.values, group.master);
    });
    optimizer->set_steps(index_.optimizer_steps);
  }
  if (!state.matrices) return;
  state.matrices->set_steps(index_.optimizer_steps);
  for (const auto& [matrix, held, into] : state.matrices->states()) {
    memory.resize(static_cast<std::size_t>(into.bytes()));
    const Slice dense{memory.data(), into.count, into.dtype, &host_device()};
    read(state.matrices->parameter(matrix).whole_name(), held.name,
         {{0, held.rows}, {0, held.columns}}, dense);
    into.device->copy(into, dense);
  }
}

void CheckpointReader::check_header(std::size_t number) {
  const StoredFile& stored_file = index_.files[number];
  const SafetensorsFile& file = open(number);
  require(file.tensors().size() == stored_file.tensors.size(),
          fmt::format("{}: {} tensors, not {}", file.path(), file.tensors().size(),
                      stored_file.tensors.size()),
          "the checkpoint is damaged; use another one");
  require(file.header_checksum() == stored_file.header_checksum.value_or(file.header_checksum()),
          fmt::format("{}: the checksum of its header is wrong", file.path()),
          "the checkpoint is damaged; use another one");
  for (const StoredBox& stored : stored_file.tensors) entry(number, stored);
}

void CheckpointReader::verify(std::size_t number) {
  check_header(number);
  const StoredFile& stored_file = index_.files[number];
  const SafetensorsFile& file = open(number);
  std::vector<std::byte> memory;
  for (const StoredBox& stored : stored_file.tensors) {
    const TensorEntry& tensor = entry(number, stored);
    Checksum sum;
    for (Count first = 0; first < tensor.count(); first += elements_at_once) {
      const Count count = std::min(elements_at_once, tensor.count() - first);
      memory.resize(static_cast<std::size_t>(count * element_bytes(tensor.dtype)));
      const Slice part{memory.data(), count, tensor.dtype, &host_device()};
      file.read_part(tensor, first, part);
      sum.add(bytes_of(part));
    }
    require(sum.value() == stored.checksum,
            fmt::format("{}: the checksum of '{}' is wrong", file.path(), tensor.name),
            "the checkpoint is damaged; use another one");
  }
}

void CheckpointReader::verify_all() {
  for (std::size_t number = 0; number < index_.files.size(); ++number) verify(number);
}

void CheckpointReader::require_unchanged() const {
  require(index_identity(folder_) == index_.identity,
          fmt::format("{} was replaced while it was read", folder_),
          "try again when nothing writes to its folder");
}

}  // namespace lockstep
