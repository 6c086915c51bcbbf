// What is read from files: broken, truncated and hostile ones are refused with a message that says
// why.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/dataset.h"
#include "models/gpt_config.h"
#include "models/safetensors.h"
#include "models/schedule.h"
#include "models/weights.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test.
class Files : public testing::Test {
 protected:
  Files() : folder_(fs::temp_directory_path() / "lockstep-files-XXXXXX") {
    std::string name = folder_.string();
    folder_ = mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  fs::path folder_;
};

// Runs `action` and expects Error (bad_input) whose message contains `part`.
template <typename Action>
void expect_refused(const Action& action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(error.message().find(part), std::string::npos)
        << error.message() << "\nexpected: " << part;
  }
}

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + rest;
}
std::string safetensors(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\0'));
}

struct Hostile {
  std::string name, content, message;
};

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
     safetensors(R"({"a":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 0),
     "nested too deeply"},
    {"same name twice", safetensors(R"({"a":)" + pair + R"([0,4]},"a":)" + pair + "[0,4]}}", 4),
     "\"a\" occurs twice"},
    {"same key twice", safetensors(R"({"a":{"dtype":"F32","dtype":"F64"}})", 0),
     "\"dtype\" occurs twice"},
    {"metadata of numbers", safetensors(R"({"__metadata__":{"a":1}})", 0), "__metadata__ is not"},
    {"metadata a list", safetensors(R"({"__metadata__":["a"]})", 0), "__metadata__ is not"},
    {"a number", safetensors(R"({"a":1})", 0), "'a' lacks dtype"},
    {"no offsets", safetensors(R"({"a":{"dtype":"F32","shape":[]}})", 4), "'a' lacks dtype"},
    {"escape in a name", safetensors(R"({"\u001b[2J":1})", 0), "is no name of a tensor"},
    {"empty name", safetensors(R"({"":1})", 0), "is no name of a tensor"},
    {"long name", safetensors("{\"" + std::string(1001, 'a') + "\":1}", 0),
     "is no name of a tensor"},
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
  expect_refused([&] { Dataset("/dev/zero", 256, 0); }, "not a regular file");
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

// A model's parameters without the model.
struct Model {
  explicit Model(DType dtype) : parameters(dtype, ledger) {
    parameters.add("wte.weight", {3, 2});
    parameters.add("h.0.ln_1.bias", {2});
    parameters.allocate();
  }
  Ledger ledger;
  Parameters parameters;
};

TEST_F(Files, WeightsSurviveARoundTripBetweenTypes) {
  Model saved(DType::f32), loaded(DType::f64);
  for (int i = 0; i < 8; ++i)
    host_span<float>(saved.parameters.values())[i] = 0.1F * static_cast<float>(i);
  save_weights(path("w.safetensors"), saved.parameters, GptConfig::preset("nano"));
  load_weights(path("w.safetensors"), loaded.parameters);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(host_span<double>(loaded.parameters.values())[i],
              host_span<float>(saved.parameters.values())[i]);
  EXPECT_EQ(read_gpt_config(path("config.json")).width, 128);
  expect_refused([&] { save_weights(path("config.json"), saved.parameters, {}); },
                 "written beside the weights");
}

TEST_F(Files, WeightsOfAnotherModelAreRefused) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6}, others = {1, 2, 3, 4, 5, 7}, two = {8, 9};
  const NamedSlice wte{"transformer.wte.weight", {3, 2}, host_slice(std::span(values))};
  const NamedSlice bias{"transformer.h.0.ln_1.bias", {2}, host_slice(std::span(two))};
  const NamedSlice mask{"h.0.attn.bias", {1, 2}, host_slice(std::span(two))};
  const auto load = [&](const std::vector<NamedSlice>& tensors) {
    Model model(DType::f32);
    write_safetensors(path("w"), tensors);
    load_weights(path("w"), model.parameters);
    EXPECT_EQ(host_span<float>(model.parameters.value(1))[1], 9);
  };
  load({wte, bias, mask, {"lm_head.weight", {3, 2}, wte.data}});
  expect_refused([&] { load({wte}); }, "no tensor 'h.0.ln_1.bias'");
  expect_refused([&] { load({wte, bias, {"x", {2}, bias.data}}); }, "no parameter 'x'");
  expect_refused(
      [&] {
        load({{"wte.weight", {2, 3}, wte.data}, bias});
      },
      "shape [2, 3], the model's has [3, 2]");
  expect_refused([&] { load({wte, {"wte.weight", {3, 2}, wte.data}, bias}); }, "occurs twice");
  expect_refused(
      [&] {
        load({wte, bias, {"lm_head.weight", {3, 2}, host_slice(std::span(others))}});
      },
      "not equal to 'wte.weight'");
}

TEST_F(Files, ConfigsAreChecked) {
  const auto read = [&](const std::string& changed) {
    return read_gpt_config(write(
        "c",
        R"({"n_layer":2,"n_head":2,"n_embd":8,"n_positions":4,"vocab_size":9)" + changed + "}"));
  };
  EXPECT_EQ(read("").parameter_count(), 9 * 8 + 4 * 8 + 2 * (12 * 64 + 13 * 8) + 16);
  EXPECT_EQ(read(R"(,"n_inner":null,"resid_pdrop":0.1)").context, 4);
  const std::pair<const char*, const char*> refused[] = {
      {R"(,"n_layer":0)", "\"n_layer\" is 0"},
      {R"(,"n_layer":-1)", "\"n_layer\" is -1"},
      {R"(,"n_layer":2.0)", "\"n_layer\" is 2.0"},
      {R"(,"n_layer":"2")", "\"n_layer\" is \"2\""},
      {R"(,"n_layer":4294967298)", "\"n_layer\" is 4294967298"},
      {R"(,"n_layer":100000)", "100000 layers"},
      {R"(,"n_embd":200000)", "200000 width"},
      {R"(,"vocab_size":20000000)", "20000000 vocabulary"},
      {R"(,"n_head":3)", "a width of 8 in 3 heads"},
      {R"(,"layer_norm_epsilon":0)", "layer_norm_epsilon of 0"},
      {R"(,"layer_norm_epsilon":"x")", "is no number"},
      {R"(,"activation_function":"relu")", "is \"relu\""},
      {R"(,"tie_word_embeddings":false)", "is false"},
      {R"(,"model_type":"llama")", "is \"llama\""},
      {R"(,"n_inner":31)", "\"n_inner\" is 31"},
      {R"(,"scale_attn_weights":false)", "\"scale_attn_weights\" is false"},
      {"}", "not a JSON object"},
  };
  for (const auto& [changed, message] : refused) expect_refused([&] { read(changed); }, message);
  expect_refused([&] { read_gpt_config(write("c", R"({"n_layer":2})")); }, "no \"n_head\"");
  expect_refused([&] { GptConfig::preset("huge"); }, "no model 'huge'");
}

std::string token_file(std::vector<std::int32_t> head, const std::vector<std::uint16_t>& tokens) {
  head.resize(256);
  return std::string(reinterpret_cast<const char*>(head.data()), 1024) +
         std::string(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
}

TEST_F(Files, BrokenDatasetsAreRefused) {
  const Hostile broken[] = {
      {"empty", "", "is empty"},
      {"beyond the vocabulary", "abc\xff", "token 3 is 255, the model's vocabulary has 200"},
      {"short header", token_file({20240520, 1, 0}, {}).substr(0, 1023), "cut off"},
      {"version", token_file({20240520, 2, 1}, {1}), "version 2"},
      {"truncated", token_file({20240520, 1, 3}, {1, 2}), "announces 3 tokens, the file holds 2"},
      {"extra", token_file({20240520, 1, 1}, {1, 2}), "announces 1 tokens, the file holds 2"},
      {"odd byte", token_file({20240520, 1, 1}, {1}) + "x", "announces 1"},
      {"negative", token_file({20240520, 1, -1}, {1}), "announces -1"},
      {"token", token_file({20240520, 1, 2}, {1, 200}), "token 1 is 200"},
      {"32-bit tokens", token_file({20240801, 7, 2}, {1, 200}), "32-bit tokens"},
  };
  for (const auto& [name, content, message] : broken) {
    SCOPED_TRACE(name);
    expect_refused([&] { Dataset(write("d", content), 200, 0); }, message);
  }
  const std::string file = write("d", "abcdefgh");
  expect_refused([&] { Dataset(file, 256, 1); }, "a validation fraction of 1");
  expect_refused([&] { Dataset(file, 256, std::nan("")); }, "a validation fraction");
  expect_refused([&] { Dataset(file, 256, 0).batch(Order::random, 0, 1, 0, 1, 8, 0); },
                 "too few for a sequence of 8");
}

TEST_F(Files, BatchesAreTheSameHoweverTheyAreCut) {
  std::vector<std::uint16_t> tokens(101);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i);
  const Dataset data(write("d", token_file({20240520, 1, 101}, tokens)), 256, 0.2);
  EXPECT_EQ(data.training_tokens(), 81);

  const Batch second = data.batch(Order::sequential, 1, 4, 1, 2, 5, 0);
  EXPECT_EQ(second.inputs, (std::vector<std::int32_t>{25, 26, 27, 28, 29, 30, 31, 32, 33, 34}));
  EXPECT_EQ(second.targets, (std::vector<std::int32_t>{26, 27, 28, 29, 30, 31, 32, 33, 34, 35}));
  EXPECT_EQ(data.batch(Order::sequential, 3, 4, 3, 1, 5, 0).targets.back(), 80);
  expect_refused([&] { data.batch(Order::sequential, 4, 4, 0, 1, 5, 0); },
                 "the file has 16 of 5 tokens");

  const Batch whole = data.batch(Order::random, 7, 4, 0, 4, 5, 42);
  for (int row = 0; row < 4; ++row) {
    const Batch part = data.batch(Order::random, 7, 4, row, 1, 5, 42);
    EXPECT_TRUE(std::equal(part.inputs.begin(), part.inputs.end(), whole.inputs.begin() + 5 * row));
  }
  EXPECT_NE(whole.inputs, data.batch(Order::random, 8, 4, 0, 4, 5, 42).inputs);
  EXPECT_NE(whole.inputs, data.batch(Order::random, 7, 4, 0, 4, 5, 43).inputs);
  for (int step = 0; step < 500; ++step)
    for (const std::int32_t target : data.batch(Order::random, step, 1, 0, 1, 5, 1).targets)
      ASSERT_LT(target, 81);

  EXPECT_EQ(data.validation_sequences(5), 3);
  EXPECT_EQ(data.validation_batch(1, 1, 5).inputs.front(), 86);
  expect_refused([&] { data.validation_batch(3, 1, 5); }, "validation sequences 3 to 4 of 3");
}

TEST_F(Files, EntropyOfTheTrainingText) {
  EXPECT_DOUBLE_EQ(Dataset(write("d", "abababab"), 256, 0).unigram_entropy(), std::log(2));
  EXPECT_DOUBLE_EQ(Dataset(write("d", "aaaab"), 256, 0.2).unigram_entropy(), 0);
}

TEST(Schedule, WarmsUpAndFallsToTheMinimum) {
  const LearningRateSchedule flat{.peak = 2, .total_steps = 10};
  EXPECT_EQ(flat.at(0), 2);
  EXPECT_EQ(flat.at(9), 2);
  const LearningRateSchedule cosine{
      .peak = 2, .warmup_steps = 4, .minimum = 1, .total_steps = 15, .cosine = true};
  EXPECT_DOUBLE_EQ(cosine.at(0), 0.5);
  EXPECT_DOUBLE_EQ(cosine.at(3), 2);
  EXPECT_DOUBLE_EQ(cosine.at(4), 2);
  EXPECT_DOUBLE_EQ(cosine.at(9), 1.5);
  EXPECT_DOUBLE_EQ(cosine.at(14), 1);
}

TEST_F(Files, OutputsAppearWholeOrNotAtAll) {
  write_file(path("out"), "old");
  write_file(path("out"), "new");
  EXPECT_EQ(read_text(path("out"), 10), "new");
  check_writable(path("out2"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  expect_refused([&] { check_writable(path("missing/out")); }, "No such file");
  expect_refused([&] { check_writable(path("out/below")); }, "Not a directory");
  expect_refused([&] { write_file(folder_.string(), "x"); }, "it is a folder");
  expect_refused([&] { read_text(path("out"), 2); }, "3 bytes, more than the 2");
}

}  // namespace
}  // namespace lockstep
