// Written files appear whole or not at all, even if the writer is killed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
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
  expect_refused([&] { read_text(path("out"), 2); }, "3 bytes, more than the 2");
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
