// Text and token files, the batches cut from them, and the schedule of the learning rate.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <fstream>

#include "models/data/dataset.h"
#include "models/optimizers/learning_rate.h"
#include "tests/models/files.h"

namespace lockstep {
namespace {

template <typename T>
std::string bytes_of(const std::vector<T>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), sizeof(T) * tokens.size()};
}

template <typename T = std::uint16_t>
std::string token_file(std::vector<std::int32_t> head, const std::vector<T>& tokens) {
  head.resize(256);
  return bytes_of(head) + bytes_of(tokens);
}

TEST_F(Files, BrokenDatasetsAreRefused) {
  const Hostile broken[] = {
      {"empty", "", "is empty"},
      {"beyond the vocabulary", "abc\xff", "token 3 is 255, the model's vocabulary has 200"},
      {"short header", token_file<std::uint16_t>({20240520, 1, 0}, {}).substr(0, 1023), "cut off"},
      {"version", token_file<std::uint16_t>({20240520, 2, 1}, {1}), "version 2"},
      {"truncated", token_file<std::uint16_t>({20240520, 1, 3}, {1, 2}),
       "announces 3 tokens, the file holds 2"},
      {"extra", token_file<std::uint16_t>({20240520, 1, 1}, {1, 2}),
       "announces 1 tokens, the file holds 2"},
      {"odd byte", token_file<std::uint16_t>({20240520, 1, 1}, {1}) + "x", "announces 1"},
      {"negative", token_file<std::uint16_t>({20240520, 1, -1}, {1}), "announces -1"},
      {"token", token_file<std::uint16_t>({20240520, 1, 2}, {1, 200}), "token 1 is 200"},
      {"wide version", token_file<std::uint32_t>({20240801, 1, 1}, {1}), "version 1"},
      {"wide truncated", token_file<std::uint16_t>({20240801, 7, 2}, {1, 2}),
       "announces 2 tokens, the file holds 1"},
      {"wide token", token_file<std::uint32_t>({20240801, 7, 2}, {1, 1u << 31}),
       "token 1 is 2147483648"},
      {"no header", bytes_of(std::vector<std::uint16_t>{300, 2, 3}), "byte 3 is zero"},
      {"another header", token_file<std::uint32_t>({20250520, 1, 1}, {1}), "byte 5 is zero"},
  };
  for (const auto& [name, content, message] : broken) {
    SCOPED_TRACE(name);
    expect_refused([&] { Dataset(write("d", content), 200, 0); }, message);
  }
  expect_refused([] { Dataset("/dev/zero", 256, 0); }, "not a regular file");
  expect_refused([&] { Dataset(write("d.bin", "plain"), 256, 0); }, "a .bin file without");
  const std::string file = write("d", "abcdefgh");
  expect_refused([&] { Dataset(file, 256, 1); }, "a validation fraction of 1");
  expect_refused([&] { Dataset(file, 256, std::nan("")); }, "a validation fraction");
  expect_refused(
      [&] {
        Dataset(file, 256, 0).batch({Order::random, 1, 8, 0}, 0, 0, 1);
      },
      "too few for a sequence of 8");
}

std::vector<std::int32_t> first_inputs(const Dataset& data, int count) {
  return data.batch({Order::sequential, 1, count, 0}, 0, 0, 1).inputs;
}

TEST_F(Files, TokensWithoutAHeaderHaveTheTypeThatTheUserNames) {
  const std::string narrow = write("n.bin", bytes_of(std::vector<std::uint16_t>{7, 300, 0, 9}));
  const std::string wide = write("w.bin", bytes_of(std::vector<std::uint32_t>{7, 90000, 0, 9}));
  EXPECT_EQ(first_inputs({"uint16:" + narrow, 50257, 0}, 3),
            (std::vector<std::int32_t>{7, 300, 0}));
  EXPECT_EQ(first_inputs({"uint32:" + wide, 100'000, 0}, 3),
            (std::vector<std::int32_t>{7, 90000, 0}));
  EXPECT_EQ(first_inputs({"text:" + narrow, 256, 0}, 3), (std::vector<std::int32_t>{7, 0, 44}));
  expect_refused([&] { Dataset("uint16:" + write("odd", "abc"), 256, 0); },
                 "3 bytes are no whole number of 16-bit tokens");
  expect_refused([&] { Dataset("uint32:" + wide, 50257, 0); }, "token 1 is 90000");
  // With a header the name of the type must agree.
  const std::string file = write("h.bin", token_file<std::uint16_t>({20240520, 1, 3}, {4, 5, 6}));
  EXPECT_EQ(first_inputs({"uint16:" + file, 256, 0}, 2), (std::vector<std::int32_t>{4, 5}));
  expect_refused([&] { Dataset("uint32:" + file, 256, 0); }, "its tokens have 16 bits, not 32");
}

TEST_F(Files, WideTokenFilesAreRead) {
  const std::vector<std::uint32_t> tokens = {128000, 5, 6, 128000, 7, 8};
  const Dataset data(write("w", token_file<std::uint32_t>({20240801, 7, 6}, tokens)), 128256, 0,
                     true);
  EXPECT_EQ(first_inputs(data, 4), (std::vector<std::int32_t>{128000, 5, 6, 128000}));
  EXPECT_EQ(data.document_lengths({Order::sequential, 1, 5, 0}, 0, 0), (std::vector<Count>{3, 2}));
  EXPECT_GT(data.unigram_entropy(), 0);
}

TEST_F(Files, ShardsContinueOneAnother) {
  const auto shard = [&](const char* name, std::vector<std::uint16_t> tokens) {
    return write(name, token_file<std::uint16_t>(
                           {20240520, 1, static_cast<std::int32_t>(tokens.size())}, tokens));
  };
  const std::string first = shard("train_1.bin", {1, 2, 3}), second = shard("train_2.bin", {4, 5}),
                    third = shard("train_3.bin", {6, 7, 8, 9}),
                    whole = shard("whole", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const std::vector<std::int32_t> all = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const std::string& data :
       {path("train_*.bin"), path("train_?.bin"), first + "," + second + "," + third,
        first + "," + path("train_[!1]*"), whole}) {
    const Dataset shards(data, 256, 0);
    EXPECT_EQ(first_inputs(shards, 8), all) << data;
    EXPECT_EQ(shards.checksum(), Dataset(whole, 256, 0).checksum()) << data;
  }
  EXPECT_EQ(data_paths("uint16:" + path("train_*.bin")),
            (std::vector<std::string>{first, second, third}));
  EXPECT_EQ(first_inputs({third + "," + second, 256, 0}, 5),
            (std::vector<std::int32_t>{6, 7, 8, 9, 4}));
  // A name with a comma or a star is one file, if there is such.
  EXPECT_EQ(first_inputs({write("a,b*", "xyz"), 256, 0}, 2), (std::vector<std::int32_t>{'x', 'y'}));

  expect_refused([&] { Dataset(path("nothing_*"), 256, 0); }, "no file matches");
  expect_refused([&] { Dataset(folder_.string(), 256, 0); }, "is a folder");
  expect_refused([&] { Dataset(first + "," + write("t", "text"), 256, 0); },
                 "has tokens of 8 bits");
  expect_refused([&] { Dataset(first + ",", 256, 0); }, "");
}

// Bytes of this process that are no file's.
std::int64_t own_bytes() {
  std::ifstream lines("/proc/self/status");
  for (std::string name; lines >> name; std::getline(lines, name))
    if (std::int64_t kibibytes = 0; name == "RssAnon:" && lines >> kibibytes)
      return kibibytes * 1024;
  return 0;
}

TEST_F(Files, RanksShareTheData) {
  constexpr std::int64_t bytes = 64 << 20;
  const std::string file = write("large", std::string(bytes, 'a'));
  const std::int64_t before = own_bytes();
  ASSERT_GT(before, 0);
  std::deque<Dataset> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.emplace_back(file, 256, 0);
  EXPECT_EQ(ranks[3].training_tokens(), bytes);
  EXPECT_LT(own_bytes() - before, bytes / 2);
}

TEST_F(Files, BatchesAreTheSameHoweverTheyAreCut) {
  std::vector<std::uint16_t> tokens(101);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i);
  const Dataset data(write("d", token_file({20240520, 1, 101}, tokens)), 256, 0.2);
  EXPECT_EQ(data.training_tokens(), 81);

  const Batch second = data.batch({Order::sequential, 4, 5, 0}, 1, 1, 2);
  EXPECT_EQ(second.inputs, (std::vector<std::int32_t>{25, 26, 27, 28, 29, 30, 31, 32, 33, 34}));
  EXPECT_EQ(second.targets, (std::vector<std::int32_t>{26, 27, 28, 29, 30, 31, 32, 33, 34, 35}));
  EXPECT_EQ(data.batch({Order::sequential, 4, 5, 0}, 3, 3, 1).targets.back(), 80);
  expect_refused(
      [&] {
        data.batch({Order::sequential, 4, 5, 0}, 4, 0, 1);
      },
      "the data have 16 of 5 tokens");

  const Batch whole = data.batch({Order::random, 4, 5, 42}, 7, 0, 4);
  for (int row = 0; row < 4; ++row) {
    const Batch part = data.batch({Order::random, 4, 5, 42}, 7, row, 1);
    EXPECT_TRUE(std::equal(part.inputs.begin(), part.inputs.end(), whole.inputs.begin() + 5 * row));
  }
  EXPECT_NE(whole.inputs, data.batch({Order::random, 4, 5, 42}, 8, 0, 4).inputs);
  EXPECT_NE(whole.inputs, data.batch({Order::random, 4, 5, 43}, 7, 0, 4).inputs);
  for (int step = 0; step < 500; ++step)
    for (const std::int32_t target : data.batch({Order::random, 1, 5, 1}, step, 0, 1).targets)
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

}  // namespace
}  // namespace lockstep
