// Safetensors: damaged, truncated and hostile files are refused with a reason.
#include <gtest/gtest.h>

#include <cstring>

#include "collectives/base/file.h"
#include "models/gpt/safetensors.h"
#include "tests/models/files.h"

namespace lockstep {
namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + rest;
}
std::string safetensors(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\0'));
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}
const std::string f32 = R"("F32")";
const std::string pair = R"({"dtype":"F32","shape":[1],"data_offsets":)";

const Hostile hostile_files[] = {
    {"empty", "", "0 bytes are too few"},
    {"seven bytes", "1234567", "7 bytes are too few"},
    {"no header", with_length(0, ""), "does not begin with '{'"},
    {"huge length", with_length(~0ULL, "{}"), "a header of 18446744073709551615 bytes"},
    {"length past the end", with_length(3, "{}"), "a header of 3 bytes in a file of 10"},
    {"more than 16 MiB", with_length((16 << 20) + 1, std::string((16 << 20) + 1, ' ')),
     "at most 16777216"},
    {"array", safetensors("[]", 0), "does not begin with '{'"},
    {"space first", safetensors(" {}", 0), "does not begin with '{'"},
    {"broken JSON", safetensors(R"({"a":)", 0), "not a JSON object"},
    {"text after it", safetensors("{}x", 0), "not a JSON object"},
    {"invalid UTF-8", safetensors("{\"\xff\":1}", 0), "not a JSON object"},
    {"deep",
     safetensors(R"({"a":{"b":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}}", 0),
     "nested too deeply"},
    {"same name twice", safetensors(R"({"a":)" + pair + R"([0,4]},"a":)" + pair + "[0,4]}}", 4),
     "\"a\" occurs twice"},
    {"same key twice", safetensors(R"({"a":{"dtype":"F32","dtype":"F64"}})", 0),
     "\"dtype\" occurs twice"},
    {"metadata of numbers", safetensors(R"({"__metadata__":{"a":1}})", 0), "__metadata__ is not"},
    {"metadata a list", safetensors(R"({"__metadata__":["a"]})", 0), "__metadata__ is not"},
    {"a number", safetensors(R"({"a":1})", 0), "'a' lacks dtype"},
    {"no offsets", safetensors(R"({"a":{"dtype":"F32","shape":[]}})", 4), "'a' lacks dtype"},
    {"escape in a name", safetensors(R"({"\u001b[2J":1})", 0), "is not a name of a tensor"},
    {"empty name", safetensors(R"({"":1})", 0), "is not a name of a tensor"},
    {"long name", safetensors("{\"" + std::string(1001, 'a') + "\":1}", 0),
     "is not a name of a tensor"},
    {"unknown type", safetensors(tensor(R"("F31")", "[1]", "[0,4]"), 4), "unknown type \"F31\""},
    {"type a number", safetensors(tensor("4", "[1]", "[0,4]"), 4), "unknown type 4"},
    {"negative extent", safetensors(tensor(f32, "[-1]", "[0,4]"), 4),
     "an extent of tensor 'a' is -1"},
    {"fraction", safetensors(tensor(f32, "[1.5]", "[0,4]"), 4), "an extent of tensor 'a' is 1.5"},
    {"extent beyond 64 bits", safetensors(tensor(f32, "[99999999999999999999]", "[0,4]"), 4),
     "an extent of tensor 'a'"},
    {"extent a text", safetensors(tensor(f32, R"(["1"])", "[0,4]"), 4),
     "an extent of tensor 'a' is \"1\""},
    {"shape a number", safetensors(tensor(f32, "1", "[0,4]"), 4), "no usable shape"},
    {"shape of lists", safetensors(tensor(f32, "[[1]]", "[0,4]"), 4),
     "an extent of tensor 'a' is []"},
    {"nine extents", safetensors(tensor(f32, "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4),
     "no usable shape"},
    {"product overflows", safetensors(tensor(f32, "[4294967296,4294967296]", "[0,0]"), 0),
     "overflows"},
    {"three offsets", safetensors(tensor(f32, "[1]", "[0,4,8]"), 8), "no usable data_offsets"},
    {"negative offset", safetensors(tensor(f32, "[1]", "[-4,0]"), 4),
     "the begin of tensor 'a' is -4"},
    {"reversed", safetensors(tensor(f32, "[1]", "[4,0]"), 4),
     "needs 4 bytes for its shape, its offsets hold -4"},
    {"too small", safetensors(tensor(f32, "[2]", "[0,4]"), 4),
     "needs 8 bytes for its shape, its offsets hold 4"},
    {"hole in front", safetensors(tensor(f32, "[1]", "[4,8]"), 8),
     "begins at byte 4, the one before it ends at 0"},
    {"overlap", safetensors(R"({"a":)" + pair + R"([0,4]},"b":)" + pair + "[2,6]}}", 6),
     "'b' begins at byte 2"},
    {"hole between", safetensors(R"({"a":)" + pair + R"([0,4]},"b":)" + pair + "[8,12]}}", 12),
     "'b' begins at byte 8"},
    {"truncated data", safetensors(tensor(f32, "[2]", "[0,8]"), 7),
     "describes 8 bytes of data, the file holds 7"},
    {"extra data", safetensors(tensor(f32, "[1]", "[0,4]"), 5),
     "describes 4 bytes of data, the file holds 5"},
    {"promised terabytes", safetensors(tensor(f32, "[1000000000000]", "[0,4000000000000]"), 4),
     "the file holds 4"},
};

TEST_F(Files, HostileSafetensorsAreRefused) {
  for (const auto& [name, content, message] : hostile_files) {
    SCOPED_TRACE(name);
    const std::string file = write("x", content);
    expect_refused([&] { SafetensorsFile{file}; }, message);
    expect_refused([&] { SafetensorsFile{file}; }, file);
  }
}

TEST_F(Files, OnlyRegularFilesAreRead) {
  expect_refused([&] { SafetensorsFile(path("missing")); }, "No such file");
  expect_refused([&] { SafetensorsFile(folder_.string()); }, "not a regular file");
  expect_refused([&] { SafetensorsFile("/dev/urandom"); }, "not a regular file");
}

TEST_F(Files, TensorsSurviveARoundTrip) {
  std::vector<double> a = {1, -2.5, 1e-300, 3, 4, 5};
  std::vector<float> b = {0.1F, -7};
  write_safetensors(path("t"), {{"b", {2, 3}, host_slice(std::span(a))},
                                {"a", {2}, host_slice(std::span(b))},
                                {"none", {0, 3}, host_slice(std::span(b)).first(0)}});
  const SafetensorsFile file(path("t"));
  ASSERT_EQ(file.tensors().size(), 3U);
  for (const TensorEntry& entry : file.tensors()) {
    std::vector<double> read(static_cast<std::size_t>(entry.count()));
    file.read(entry, host_slice(std::span(read)));
    EXPECT_EQ(read, entry.name == "b"   ? a
                    : entry.name == "a" ? std::vector<double>(b.begin(), b.end())
                                        : std::vector<double>());
  }
  std::uint64_t length = 0;
  std::memcpy(&length, read_text(path("t"), 1 << 20).data(), 8);
  EXPECT_EQ(length % 8, 0U);
}

TEST_F(Files, HalvesAreConverted) {
  const std::string header = R"({"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                             R"("i":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})";
  const std::string data("\x00\xbe\x01\x01", 4);
  const std::string file = write("h", with_length(header.size(), header + data));
  const SafetensorsFile halves(file);
  std::vector<float> one(1), two(2);
  halves.read(halves.tensors()[0], host_slice(std::span(one)));
  EXPECT_EQ(one[0], -1.5F);
  expect_refused([&] { halves.read(halves.tensors()[1], host_slice(std::span(two))); },
                 "not floating-point");
  expect_refused([&] { halves.read(halves.tensors()[0], host_slice(std::span(two))); },
                 "1 elements, 2 are expected");
}

}  // namespace
}  // namespace lockstep
