#include "models/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::int64_t most_header_bytes = 16 << 20;
constexpr int most_depth = 8;
constexpr std::pair<std::string_view, DType> dtype_names[] = {
    {"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32}, {"F64", DType::f64},
    {"I8", DType::i8},   {"U8", DType::u8},     {"BOOL", DType::u8}, {"I32", DType::i32},
    {"U32", DType::u32}, {"I64", DType::i64},   {"U64", DType::u64}};

[[noreturn]] void refuse(const std::string& path, std::string_view what) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, what),
              {.hint = "the file is damaged or not a safetensors file"});
}

// A value from a file, for a terminal: control characters escaped, and shortened.
std::string shown(const json& value) { return value.dump(-1, ' ', true).substr(0, 60); }

// The header as JSON. Detects duplicate keys during parsing, because nlohmann silently keeps the
// last.
json parse_json(const std::string& path, std::string_view header) {
  std::vector<std::set<std::string>> keys;
  std::string fault;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > most_depth && fault.empty()) fault = "the header is nested too deeply";
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second &&
        fault.empty())
      fault = fmt::format("the name {} occurs twice in the header", shown(value));
    return fault.empty();
  };
  const json parsed = json::parse(header, watch, false);
  if (!fault.empty()) refuse(path, fault);
  if (!parsed.is_object()) refuse(path, "the header is not a JSON object");
  return parsed;
}

std::int64_t whole_number(const std::string& path, const std::string& tensor, std::string_view what,
                          const json& value) {
  if (!value.is_number_integer() || value < 0 ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62))
    refuse(path, fmt::format("{} of tensor '{}' is {}, not a whole number in range", what, tensor,
                             shown(value)));
  return value.get<std::int64_t>();
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
    refuse(path, fmt::format("{} is not a name of a tensor", shown(name)));
}

void check_metadata(const std::string& path, const json& metadata) {
  const auto is_text = [](const json& value) { return value.is_string(); };
  if (!metadata.is_object() || !std::ranges::all_of(metadata, is_text))
    refuse(path, "__metadata__ is not an object of texts");
}

TensorEntry entry_of(const std::string& path, const std::string& name, const json& value) {
  check_name(path, name);
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets"))
    refuse(path, fmt::format("tensor '{}' lacks dtype, shape or data_offsets", name));
  TensorEntry entry{.name = name, .dtype = dtype_of_tensor(path, name, value["dtype"])};
  const json &shape = value["shape"], &offsets = value["data_offsets"];
  if (!shape.is_array() || shape.size() > 8)
    refuse(path, fmt::format("tensor '{}' has no usable shape", name));
  if (!offsets.is_array() || offsets.size() != 2)
    refuse(path, fmt::format("tensor '{}' has no usable data_offsets", name));

  std::int64_t bytes = element_bytes(entry.dtype);
  for (const json& extent : shape) {
    entry.shape.push_back(whole_number(path, name, "an extent", extent));
    if (__builtin_mul_overflow(bytes, entry.shape.back(), &bytes))
      refuse(path, fmt::format("the shape of tensor '{}' overflows", name));
  }
  entry.begin = whole_number(path, name, "the begin", offsets[0]);
  entry.end = whole_number(path, name, "the end", offsets[1]);
  if (entry.end - entry.begin != bytes)
    refuse(path, fmt::format("tensor '{}' needs {} bytes for its shape, its offsets hold {}", name,
                             bytes, entry.end - entry.begin));
  return entry;
}

}  // namespace

std::vector<TensorEntry> parse_safetensors_header(const std::string& path, std::string_view header,
                                                  std::int64_t data_bytes) {
  std::vector<TensorEntry> tensors;
  const json parsed = parse_json(path, header);
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__")
      check_metadata(path, value);
    else
      tensors.push_back(entry_of(path, name, value));
  }

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
  if (header.empty() || header[0] != '{') refuse(path, "the header does not begin with '{'");
  data_begin_ = length_bytes + static_cast<std::int64_t>(length);
  tensors_ = parse_safetensors_header(path, header, bytes - data_begin_);
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
  require(is_floating(into.dtype),
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
  std::string text = header.dump();
  // The data begin at a multiple of 8, as programs that map the file expect.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  file_.write(0, {reinterpret_cast<const char*>(&length), sizeof length});
  file_.write(sizeof length, text);
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
