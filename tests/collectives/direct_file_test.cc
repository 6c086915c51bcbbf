// Files past the page cache: data that were written can be read again, and failures are errors that
// say what to do.
#include "collectives/base/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <vector>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Files : public testing::TestWithParam<const char*> {
 protected:
  Files() {
    std::string name = std::string(GetParam()) + "/lockstep-test-XXXXXX";
    if (fs::is_directory(GetParam())) folder_ = mkdtemp(name.data());
  }
  ~Files() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  void SetUp() override {
    if (folder_.empty()) GTEST_SKIP() << "no " << GetParam();
  }
  std::string path() const { return folder_ / "tier"; }
  std::string refusal(const std::function<void()>& action) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      return error.what();
    }
    return "none";
  }

  // Whether the file system can write past the page cache at that offset.
  bool takes_direct_write(Count offset) const {
    const std::string other = folder_ / "other";
    const int descriptor = open(other.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    alignas(4096) static const std::array<char, 4096> block{};
    const bool taken =
        descriptor >= 0 && pwrite(descriptor, block.data(), block.size(), offset) > 0;
    close(descriptor);
    fs::remove(other);
    return taken;
  }

  Ledger ledger_;
  fs::path folder_;
};

std::vector<float> numbers(Count count, float first) {
  std::vector<float> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// The descriptor of this process's open file without a name.
int nameless_file() {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const std::string target = fs::read_symlink(entry.path(), none).string();
    if (target.ends_with("/tier (deleted)")) return std::stoi(entry.path().filename());
  }
  return -1;
}

// From one element to more than the buffer, in regions next to each other.
TEST_P(Files, ReadWhatWasWritten) {
  DirectFile file(path(), Count{4} << 20, &ledger_, MemoryUse::optimizer);
  EXPECT_EQ(ledger_.bytes(MemoryUse::optimizer), DirectFile::memory_bytes);
  EXPECT_TRUE(fs::is_empty(folder_));
  std::vector<std::pair<Count, std::vector<float>>> regions;
  Count offset = 0;
  for (const Count count : {1, 1024, 1025, 262144, 262145, 300001}) {
    regions.emplace_back(offset, numbers(count, static_cast<float>(count)));
    offset += DirectFile::moved_bytes(count * 4);
  }
  EXPECT_EQ(file.is_direct(), takes_direct_write(0));
  std::vector<float> unwritten(1000, 1);
  file.read(0, host_slice(std::span(unwritten)));
  EXPECT_EQ(unwritten, std::vector<float>(1000));
  for (auto& [at, region] : regions) file.write(at, host_slice(std::span(region)));
  for (const auto& [at, region] : regions) {
    std::vector<float> read(region.size());
    file.read(at, host_slice(std::span(read)));
    EXPECT_EQ(read, region) << region.size();
  }
}

// The kernel's own count of this process's reads and writes.
TEST_P(Files, MoveTheBytesThatTheyCount) {
  const auto counted = [](const std::string& wanted) {
    std::ifstream io("/proc/self/io");
    std::string name;
    for (std::int64_t bytes = 0; io >> name >> bytes;)
      if (name == wanted) return bytes;
    return std::int64_t{-1};
  };
  const bool has_counts = counted("wchar:") >= 0;
  if (!has_counts) GTEST_SKIP() << "the kernel does not count";
  DirectFile file(path(), Count{2} << 20, nullptr, MemoryUse::optimizer);
  std::vector<float> data = numbers(300001, 0);
  const std::int64_t before = counted("wchar:");
  file.write(0, host_slice(std::span(data)));
  // The address sanitizer writes a few bytes to a pipe of its own; a file's blocks are larger.
  const std::int64_t excess = counted("wchar:") - before - DirectFile::moved_bytes(300001 * 4);
  EXPECT_GE(excess, 0);
  EXPECT_LT(excess, LOCKSTEP_THOROUGH ? 1 : 256);
}

// An offset inside a block is refused as by a file system whose blocks are larger.
TEST_P(Files, GoThroughTheCacheWhereDirectTransfersAreRefused) {
  DirectFile file(path(), Count{4} << 20, nullptr, MemoryUse::optimizer);
  std::vector<float> data = numbers(300001, 3), read(data.size());
  file.write(8, host_slice(std::span(data)));
  file.read(8, host_slice(std::span(read)));
  EXPECT_EQ(read, data);
  EXPECT_EQ(file.is_direct(), takes_direct_write(8));
}

TEST_P(Files, ThatExistAreLeftAlone) {
  std::ofstream(path()) << "mine";
  EXPECT_NE(refusal([&] {
              DirectFile(path(), 4096, nullptr, MemoryUse::optimizer);
            }).find("File exists; name a file that does not exist"),
            std::string::npos);
  EXPECT_EQ(fs::file_size(path()), 4);
}

TEST_P(Files, TooLargeForALimitAreRefusedAtOnce) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 8192, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string said =
      refusal([&] { DirectFile(path(), 1 << 20, nullptr, MemoryUse::optimizer); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(said, "cannot reserve space for " + path() +
                      ": File too large; raise the limit on a file's size (ulimit -f)");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_P(Files, ThatFailLaterSayWhatToDo) {
  std::vector<float> data(2000);
  {
    DirectFile file(path(), 1 << 20, nullptr, MemoryUse::optimizer);
    const int descriptor = nameless_file();
    ASSERT_GE(descriptor, 0);
    ASSERT_EQ(ftruncate(descriptor, 4096), 0);
    EXPECT_EQ(refusal([&] { file.read(0, host_slice(std::span(data))); }),
              "cannot read " + path() + ": it has become shorter; let no other program change it");
  }
  DirectFile file(path(), 1 << 20, nullptr, MemoryUse::optimizer);
  const int descriptor = nameless_file();
  ASSERT_GE(descriptor, 0);
  const int full = open("/dev/full", O_RDWR);  // every write fails as on a full disk
  ASSERT_EQ(dup2(full, descriptor), descriptor);
  close(full);
  EXPECT_EQ(refusal([&] { file.write(0, host_slice(std::span(data))); }),
            "cannot write " + path() +
                ": No space left on device; free space, or name a file on another disk");
}

// A disk, and a file system in memory, which may have no direct transfers.
INSTANTIATE_TEST_SUITE_P(Folders, Files, testing::Values("/tmp", "/var/tmp", "/dev/shm"),
                         [](const auto& test_info) {
                           std::string name = test_info.param;
                           std::erase_if(name, [](char c) { return c == '/'; });
                           return name;
                         });

}  // namespace
}  // namespace lockstep
