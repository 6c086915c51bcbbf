// Damaged, foreign and hostile checkpoints: each is named and refused, and an older one is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/checkpoint/files.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/index_file.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    options_.steps = 4;
    options_.checkpoint = folder_.file("saved");
    options_.checkpoint_interval = 1;
    test::run(2, options_);
    options_.checkpoint.clear();
    options_.steps = 5;
  }
  TrainResult resume(const std::string& folder) {
    options_.resume = folder;
    return test::run(2, options_);
  }
  std::string newest() const { return folder_.file("saved/step-00000004"); }
  void change(const std::string& file, const std::function<void(std::string&)>& edit) {
    std::string text = read_text(newest() + "/" + file, 1 << 30);
    edit(text);
    write_file(newest() + "/" + file, text);
  }
  void restore() {
    fs::remove_all(newest());
    fs::copy(folder_.file("whole"), newest());
  }

  TrainOptions options_ = test::golden_run("ddp");
  test::Folder folder_;
};

TEST_F(Damage, OfOneBitAnywhereIsFound) {
  fs::copy(newest(), folder_.file("whole"));
  std::mt19937_64 random(3);
  const CheckpointIndex index = read_index(newest());
  for (int repetition = 0; repetition < (LOCKSTEP_THOROUGH ? 300 : 10); ++repetition) {
    const std::string file =
        repetition % 3 == 0 ? std::string(index_name) : file_name(repetition % 3 - 1);
    change(file, [&](std::string& text) {
      text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
    });
    EXPECT_THROW(
        {
          const CheckpointIndex read = read_index(newest());
          CheckpointReader reader(newest(), read);
          for (std::size_t f = 0; f < read.files.size(); ++f) reader.verify(f);
        },
        Error)
        << file;
    restore();
  }
}

TEST_F(Damage, IsNamedAndAnOlderCheckpointTaken) {
  fs::copy(newest(), folder_.file("whole"));
  const auto cut = [](std::string& text) { text.resize(text.size() / 2); };
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"index.json", [&] { change("index.json", cut); }},
      {"rank-00001.safetensors", [&] { change(file_name(1), cut); }},
      {"rank-00000.safetensors", [&] { fs::remove(newest() + "/rank-00000.safetensors"); }},
      {"index.json", [&] { change("index.json", [](std::string& text) { text = "{}"; }); }},
      {"index.json", [&] { change("index.json", [](std::string& text) { text.clear(); }); }}};
  for (const auto& [name, damage] : damages) {
    damage();
    try {
      resume(newest());
      ADD_FAILURE() << "a damaged checkpoint was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_THAT(error.message(), testing::HasSubstr(name));
    }
    testing::internal::CaptureStderr();
    const TrainResult resumed = resume(folder_.file("saved"));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(resumed.resumed->step, 3);
    EXPECT_THAT(said, testing::HasSubstr("skipping a damaged checkpoint"));
    EXPECT_THAT(said, testing::HasSubstr(name));
    restore();
  }
}

// An index that was changed on purpose has a right checksum.
TEST_F(Damage, ByHostileIndexesIsRefused) {
  const CheckpointIndex index = read_index(newest());
  const auto fault = [&](const std::function<void(CheckpointIndex&)>& edit) -> std::string {
    CheckpointIndex changed = index;
    edit(changed);
    write_file(newest() + "/index.json", index_text(changed));
    try {
      const CheckpointIndex read = read_index(newest());
      CheckpointReader reader(newest(), read);
      for (std::size_t f = 0; f < read.files.size(); ++f) reader.verify(f);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.message();
    }
    return "none";
  };
  using testing::HasSubstr;
  const auto tensor = [](CheckpointIndex& i) -> StoredBox& { return i.files[0].tensors[0]; };
  EXPECT_EQ(fault([](CheckpointIndex&) {}), "none");
  EXPECT_THAT(fault([](auto& i) { i.files[0].name = "../rank-00000.safetensors"; }),
              HasSubstr("the name of a file"));
  EXPECT_THAT(fault([](auto& i) { i.files.pop_back(); }), HasSubstr("elements of"));
  EXPECT_THAT(fault([](auto& i) { i.files.push_back(i.files[0]); }), HasSubstr("overlap"));
  EXPECT_THAT(fault([&](auto& i) { tensor(i).parameter = "no\x1b[2Jne"; }),
              HasSubstr("no parameter \"no\\u001b[2Jne\""));
  EXPECT_THAT(fault([&](auto& i) { tensor(i).box.rows.count = Count{1} << 60; }),
              HasSubstr("'rows'"));
  EXPECT_THAT(fault([&](auto& i) { tensor(i).box.columns.first = -1; }), HasSubstr("'columns'"));
  EXPECT_THAT(fault([&](auto& i) { tensor(i).dtype = DType::bf16; }), HasSubstr("type"));
  EXPECT_THAT(fault([&](auto& i) { tensor(i).dtype = DType::f32; }), HasSubstr("bytes"));
  EXPECT_THAT(fault([](auto& i) { i.step = 0; }), HasSubstr("'step' is 0"));
  EXPECT_THAT(fault([](auto& i) { i.step = 3; }), HasSubstr("of step 3, and its folder of step 4"));
  EXPECT_THAT(fault([](auto& i) { i.branch.run = "x"; }), HasSubstr("'run'"));
  EXPECT_THAT(fault([](auto& i) { i.branch.before = {{.run = "0123456789abcdef", .step = 0}}; }),
              HasSubstr("'step' is 0"));
  EXPECT_THAT(fault([](auto& i) { ++*i.files[0].header_checksum; }),
              HasSubstr("checksum of its header"));
  EXPECT_THAT(fault([](auto& i) { i.optimizer_steps = -1; }), HasSubstr("'optimizer_steps'"));
  EXPECT_THAT(fault([](auto& i) { i.model.layers = 1000; }), HasSubstr("elements of"));
  EXPECT_THAT(fault([](auto& i) { i.model.layers = 1 << 30; }), HasSubstr("n_layer"));
  EXPECT_THAT(fault([](auto& i) { i.scaler.overflows_left = -1; }), HasSubstr("'overflows_left'"));
  EXPECT_THAT(fault([](auto& i) { i.scaler.scale = 0; }), HasSubstr("'scale' is 0"));
  EXPECT_THAT(fault([](auto& i) { i.data.global_batch = 0; }), HasSubstr("'global_batch'"));
}

// Threads that hold an index at the same time hold one; another file is another index.
TEST_F(Damage, IsLookedForOnceAProcess) {
  const auto index = shared_index(newest());
  EXPECT_EQ(shared_index(newest()).get(), index.get());
  change("index.json", [](std::string& text) { text += " "; });
  EXPECT_NE(shared_index(newest()).get(), index.get());
}

// A checkpoint that another run replaces while it is read is not read as one.
TEST_F(Damage, OfAReplacedCheckpointIsFound) {
  const CheckpointIndex index = read_index(newest());
  const CheckpointReader reader(newest(), index);
  EXPECT_NO_THROW(reader.require_unchanged());
  fs::rename(newest(), folder_.file("aside"));
  fs::copy(folder_.file("aside"), newest());
  EXPECT_THROW(reader.require_unchanged(), Error);
}

// All pairs are compared.
TEST(Boxes, ThatOverlapAreFound) {
  std::mt19937_64 random(5);
  int with = 0, without = 0;
  for (int repetition = 0; repetition < 3000; ++repetition) {
    std::vector<Box> boxes;
    const auto drawn = [&] { return Range{Count(random() % 12), Count(1 + random() % 4)}; };
    for (std::size_t i = 0; i < 1 + random() % 8; ++i) boxes.push_back({drawn(), drawn()});
    bool expected = false;
    for (std::size_t a = 0; a < boxes.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        expected = expected || intersection(boxes[a], boxes[b]).has_value();
    const auto found = overlapping(boxes);
    ASSERT_EQ(found.has_value(), expected) << repetition;
    if (found) {
      EXPECT_NE(found->first, found->second);
      EXPECT_TRUE(intersection(boxes[found->first], boxes[found->second]).has_value());
    }
    ++(found ? with : without);
  }
  EXPECT_GT(std::min(with, without), 500);
}

}  // namespace
}  // namespace lockstep
