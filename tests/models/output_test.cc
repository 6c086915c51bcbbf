// Written files appear complete or not at all, even if the writer is killed.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "collectives/base/file.h"
#include "tests/models/files.h"

namespace lockstep {
namespace {

TEST_F(Files, OutputsAppearWholeOrNotAtAll) {
  write_file(path("out"), "old");
  write_file(path("out"), "new");
  EXPECT_EQ(read_text(path("out"), 10), "new");
  check_writable(path("out2"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  expect_refused([&] { check_writable(path("missing/out")); }, "No such file");
  expect_refused([&] { check_writable(path("out/below")); }, "Not a directory");
  expect_refused([&] { write_file(folder_.string(), "x"); }, "it is a folder");
  expect_refused([&] { check_writable(folder_.string()); }, "it is a folder");
  expect_refused([&] { read_text(path("out"), 2); }, "3 bytes; at most 2");
}

TEST_F(Files, EachOutputIsAnotherFile) {
  write_file(path("in"), "read");
  fs::create_symlink("in", path("link"));
  check_outputs({path("a"), "", path("b"), "", "/dev/null", "/dev/null"}, {path("in"), ""});
  expect_refused([&] { check_outputs({path("a"), path("./a")}); }, "another output names too");
  expect_refused([&] { check_outputs({path("link")}, {path("in")}); }, "which is also read");
  const fs::path before = fs::current_path();
  fs::current_path(path(""));
  expect_refused([&] { check_outputs({"new", "./new"}); }, "another output names too");
  expect_refused([&] { check_outputs({"new", path("new")}); }, "another output names too");
  fs::current_path(before);
  EXPECT_EQ(read_text(path("in"), 10), "read");
}

TEST_F(Files, LinksAndPipesAreNotReplaced) {
  write_file(path("target"), "old");
  fs::create_symlink("target", path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text(path("target"), 10), "new");
  fs::create_symlink("nothing", path("dangling"));
  expect_refused([&] { check_writable(path("dangling")); }, "a dangling symbolic link");

  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  check_writable(path("pipe"));
  std::string read;
  std::thread reader([&] {
    std::ifstream file(path("pipe"));
    std::getline(file, read);
  });
  write_file(path("pipe"), "through the pipe\n");
  reader.join();
  EXPECT_EQ(read, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));

  std::thread other([&] { std::ifstream file(path("pipe")); });
  NewFile file(path("pipe"));
  expect_refused([&] { file.write(4, "x"); }, "parts arrive in any order");
  other.join();
}

TEST_F(Files, AKilledWriterLeavesOneWholeVersion) {
  constexpr std::size_t bytes = 1 << 20;
  const std::string versions[] = {std::string(bytes, 'a'), std::string(bytes, 'b')};
  write_file(path("out"), versions[0]);
  for (int trial = 0; trial < 30; ++trial) {
    const pid_t writer = fork();
    if (writer == 0)
      for (int i = 1;; ++i) write_file(path("out"), versions[i % 2]);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 700 * trial));
    kill(writer, SIGKILL);
    int status = 0;
    waitpid(writer, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    const std::string found = read_text(path("out"), bytes);
    ASSERT_TRUE(std::ranges::count(versions, found) == 1) << "trial " << trial;
  }
}

}  // namespace
}  // namespace lockstep
