#include "models/gpt/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "collectives/base/checksum.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::int64_t most_header_bytes = 16 << 20;
constexpr std::size_t most_depth = 8;
constexpr std::pair<std::string_view, DType> dtype_names[] = {
    {"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32}, {"F64", DType::f64},
    {"I8", DType::i8},   {"U8", DType::u8},     {"BOOL", DType::u8}, {"I32", DType::i32},
    {"U32", DType::u32}, {"I64", DType::i64},   {"U64", DType::u64}};

[[noreturn]] void refuse(const std::string& path, std::string_view what) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, what),
              {.hint = "the file is damaged or not a safetensors file"});
}

DType dtype_of_tensor(const std::string& path, const std::string& name, const json& value) {
  if (value.is_string())
    for (const auto& [text, dtype] : dtype_names)
      if (value.get_ref<const std::string&>() == text) return dtype;
  refuse(path, fmt::format("tensor '{}' has the unknown type {}", name, shown(value)));
}

// Names are printed in errors, so names that could control a terminal are refused first.
void check_name(const std::string& path, const std::string& name) {
  constexpr std::size_t most_bytes = 1000;
  const auto control = [](char c) { return static_cast<std::uint8_t>(c) < 0x20 || c == 0x7f; };
  if (name.empty() || name.size() > most_bytes || std::ranges::any_of(name, control))
    refuse(path, fmt::format("{} is not a name of a tensor", shown(json(name))));
}

// Takes the header's values as they are parsed. A tree of all values would take several times as
// long, and would keep only the last of values with the same name.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  std::vector<TensorEntry> tensors;

  // What nlohmann::json::sax_parse calls.
  bool null() { return take(nullptr); }
  bool boolean(bool value) { return take(value); }
  bool number_integer(std::int64_t value) { return take(value); }
  bool number_unsigned(std::uint64_t value) {
    if (depth() != 3 || !numbers_ || value > std::uint64_t{1} << 62) return take(value);
    numbers_->push_back(static_cast<Count>(value));
    return true;
  }
  bool number_float(double value, const std::string&) { return take(value); }
  bool string(std::string& value) { return take(value); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_array() { return close(); }
  bool end_object() {
    if (depth() == 2 && !is_metadata()) add_tensor();
    return close();
  }
  bool key(std::string& name) {
    if (!names_.back().insert(name).second)
      refuse(path_, fmt::format("the name {} occurs twice in the header", shown(json(name))));
    if (depth() == 1) name_ = name;
    if (depth() == 2) field_ = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

 private:
  std::size_t depth() const { return names_.size(); }
  bool is_metadata() const { return name_ == "__metadata__"; }

  bool open(const json& empty) {
    take(empty);
    if (depth() == most_depth) refuse(path_, "the header is nested too deeply");
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  // A scalar, or an object or list whose content follows.
  bool take(const json& value) {
    if (depth() == 1 && is_metadata() && !value.is_object()) refuse_metadata();
    if (depth() == 1 && !is_metadata()) begin_tensor(value);
    if (depth() == 2 && is_metadata() && !value.is_string()) refuse_metadata();
    if (depth() == 2 && !is_metadata()) take_field(value);
    if (depth() == 3 && numbers_)
      refuse(path_, fmt::format("{} of tensor '{}' is {}, not a whole number in range",
                                numbers_ == &entry_.shape ? "an extent"
                                : offsets_.empty()        ? "the begin"
                                                          : "the end",
                                name_, shown(value)));
    return true;
  }
  [[noreturn]] void refuse_metadata() const {
    refuse(path_, "__metadata__ is not an object of texts");
  }

  void begin_tensor(const json& value) {
    check_name(path_, name_);
    if (!value.is_object()) refuse_fields();
    entry_ = {.name = name_};
    offsets_.clear();
  }
  [[noreturn]] void refuse_fields() const {
    refuse(path_, fmt::format("tensor '{}' lacks dtype, shape or data_offsets", name_));
  }

  void take_field(const json& value) {
    numbers_ = field_ == "shape" ? &entry_.shape : field_ == "data_offsets" ? &offsets_ : nullptr;
    if (numbers_ && !value.is_array()) refuse_list(field_);
    if (field_ == "dtype") entry_.dtype = dtype_of_tensor(path_, name_, value);
  }
  [[noreturn]] void refuse_list(std::string_view field) const {
    refuse(path_, fmt::format("tensor '{}' has no usable {}", name_, field));
  }

  void add_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"})
      if (!names_.back().contains(field)) refuse_fields();
    if (entry_.shape.size() > 8) refuse_list("shape");
    if (offsets_.size() != 2) refuse_list("data_offsets");
    std::int64_t bytes = element_bytes(entry_.dtype);
    for (const Count extent : entry_.shape)
      if (__builtin_mul_overflow(bytes, extent, &bytes))
        refuse(path_, fmt::format("the shape of tensor '{}' overflows", name_));
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    if (entry_.end - entry_.begin != bytes)
      refuse(path_, fmt::format("tensor '{}' needs {} bytes for its shape, its offsets hold {}",
                                name_, bytes, entry_.end - entry_.begin));
    tensors.push_back(std::move(entry_));
  }

  const std::string& path_;
  std::vector<std::set<std::string>> names_;  // in each open object or list
  std::string name_, field_;                  // the tensor's name, and the field in its object
  TensorEntry entry_;
  std::vector<Count> offsets_;
  std::vector<Count>* numbers_ = nullptr;  // the list of numbers that is being read, if any
};

// The tensors in the order of their data, of which the file holds so many bytes.
std::vector<TensorEntry> parse_header(const std::string& path, std::string_view header,
                                      std::int64_t data_bytes) {
  HeaderReader reader(path);
  if (header.empty() || header[0] != '{') refuse(path, "the header does not begin with '{'");
  if (!json::sax_parse(header, &reader)) refuse(path, "the header is not a JSON object");

  std::vector<TensorEntry> tensors = std::move(reader.tensors);
  std::ranges::sort(tensors, {}, [](const TensorEntry& t) { return std::pair(t.begin, t.end); });
  std::int64_t covered = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != covered)
      refuse(path, fmt::format("tensor '{}' begins at byte {}, the one before it ends at {}",
                               tensor.name, tensor.begin, covered));
    covered = tensor.end;
  }
  if (covered != data_bytes)
    refuse(path, fmt::format("the header describes {} bytes of data, the file holds {}", covered,
                             data_bytes));
  return tensors;
}

}  // namespace
SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  constexpr std::int64_t length_bytes = 8;
  const std::int64_t bytes = file_bytes(path);
  if (bytes < length_bytes)
    refuse(path, fmt::format("{} bytes are too few for a header's length", bytes));
  file_.open(path, std::ios::binary);
  std::uint64_t length = 0;
  file_.read(reinterpret_cast<char*>(&length), length_bytes);
  if (!file_) refuse(path, "cannot be read");
  if (length > static_cast<std::uint64_t>(std::min(most_header_bytes, bytes - length_bytes)))
    refuse(path, fmt::format("a header of {} bytes in a file of {} (at most {} are read)", length,
                             bytes, most_header_bytes));

  std::string header(length, '\0');
  file_.read(header.data(), static_cast<std::streamsize>(length));
  if (!file_) refuse(path, "the header cannot be read");
  data_begin_ = length_bytes + static_cast<std::int64_t>(length);
  header_checksum_ = checksum(header);
  tensors_ = parse_header(path, header, bytes - data_begin_);
}

void SafetensorsFile::read(const TensorEntry& tensor, Slice into) const {
  if (tensor.count() != into.count)
    refuse(path_, fmt::format("tensor '{}' has {} elements, {} are expected", tensor.name,
                              tensor.count(), into.count));
  read_part(tensor, 0, into);
}

void SafetensorsFile::read_part(const TensorEntry& tensor, Count first, Slice into) const {
  const bool floating = tensor.dtype == DType::f16 || tensor.dtype == DType::bf16 ||
                        tensor.dtype == DType::f32 || tensor.dtype == DType::f64;
  if (!floating)
    refuse(path_, fmt::format("tensor '{}' holds {}, not floating-point numbers", tensor.name,
                              name_of(tensor.dtype)));
  require(is_trainable(into.dtype),
          fmt::format("{}: tensors are read into floating-point types, "
                      "not {}",
                      path_, name_of(into.dtype)),
          "use --dtype f32, f64, bf16 or f16");
  require(first >= 0 && first + into.count <= tensor.count(),
          fmt::format("{}: elements {} to {} of tensor '{}', which has {}", path_, first,
                      first + into.count, tensor.name, tensor.count()));
  constexpr Count at_once = 1 << 18;
  const Count element = element_bytes(tensor.dtype);
  std::string bytes(static_cast<std::size_t>(std::min(at_once, into.count) * element), '\0');
  file_.clear();
  file_.seekg(data_begin_ + tensor.begin + first * element);
  for (Count begin = 0; begin < into.count; begin += at_once) {
    const Count count = std::min(at_once, into.count - begin);
    file_.read(bytes.data(), count * element);
    if (!file_) refuse(path_, fmt::format("tensor '{}' cannot be read", tensor.name));
    into.device->convert(into.part(begin, count), {reinterpret_cast<std::byte*>(bytes.data()),
                                                   count, tensor.dtype, &host_device()});
  }
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t offset = 0;
  for (TensorEntry& tensor : tensors_) {
    check_name(path, tensor.name);
    require(!header.contains(tensor.name),
            fmt::format("{}: two tensors named '{}'", path, tensor.name));
    const auto name =
        std::ranges::find(dtype_names, tensor.dtype, [](const auto& n) { return n.second; });
    tensor.begin = offset;
    offset +=
        element_bytes(tensor.dtype) *
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), Count{1}, std::multiplies<>());
    tensor.end = offset;
    header[tensor.name] = {{"dtype", name->first},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = json_line(header);
  // The data begin at a multiple of 8 bytes, as programs that map the file expect.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  file_.write(0, {reinterpret_cast<const char*>(&length), sizeof length});
  file_.write(sizeof length, text);
  header_checksum_ = checksum(text);
  data_begin_ = static_cast<std::int64_t>(sizeof length + text.size());
}

void SafetensorsWriter::write(std::size_t tensor, Count first, Slice values) {
  const TensorEntry& entry = tensors_.at(tensor);
  require(values.dtype == entry.dtype && first >= 0 && first + values.count <= entry.count(),
          fmt::format("elements {} to {} written to tensor '{}', which has {}", first,
                      first + values.count, entry.name, entry.count()));
  file_.write(
      data_begin_ + entry.begin + first * element_bytes(entry.dtype),
      {reinterpret_cast<const char*>(values.data), static_cast<std::size_t>(values.bytes())});
}

void write_safetensors(const std::string& path, const std::vector<NamedSlice>& tensors) {
  std::vector<TensorEntry> entries;
  for (const NamedSlice& tensor : tensors)
    entries.push_back({.name = tensor.name, .dtype = tensor.data.dtype, .shape = tensor.shape});
  SafetensorsWriter writer(path, std::move(entries));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Slice data = tensors[i].data;
    const Count count = std::accumulate(tensors[i].shape.begin(), tensors[i].shape.end(), Count{1},
                                        std::multiplies<>());
    require(count == data.count, fmt::format("{}: '{}' has {} elements, its shape {}", path,
                                             tensors[i].name, data.count, count));
    std::vector<std::byte> bytes(static_cast<std::size_t>(data.bytes()));
    const Slice on_host{bytes.data(), data.count, data.dtype, &host_device()};
    data.device->copy(on_host, data);
    writer.write(i, 0, on_host);
  }
  writer.finish();
}

}  // namespace lockstep
