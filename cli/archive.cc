#include "cli/archive.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/results/environment.h"
#include "cli/doctor.h"
#include "cli/process.h"
#include "cli/topology.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

// Removed with all that it holds.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "lockstep-archive-XXXXXX").string()) {
    require(mkdtemp(path_.data()) != nullptr, fmt::format("cannot make the folder {}", path_),
            "set TMPDIR to a folder that you may write to");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_all(int descriptor, const char* bytes, ssize_t count) {
  while (count > 0) {
    const ssize_t written = ::write(descriptor, bytes, static_cast<std::size_t>(count));
    if (written <= 0) return;  // as if we had printed there ourselves
    bytes += written, count -= written;
  }
}

}  // namespace

// Passes on what goes to the standard output, and keeps a copy.
class PrintedText {
 public:
  PrintedText() {
    std::fflush(stdout);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // also where it is a pipe now
    int ends[2];
    require(pipe(ends) == 0, "cannot make a pipe for --archive", "close files, or omit --archive");
    read_end_ = ends[0];
    output_ = dup(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    stop_ = eventfd(0, EFD_CLOEXEC);
    reader_ = std::thread([this] { pass_on(); });
  }
  ~PrintedText() {
    stop();
    close(read_end_), close(output_), close(stop_);
  }
  PrintedText(const PrintedText&) = delete;

  // Ends the copying. Programs that still hold the pipe cannot delay it.
  const std::string& stop() {
    if (!reader_.joinable()) return text_;
    std::fflush(stdout);
    dup2(output_, STDOUT_FILENO);
    const std::uint64_t one = 1;
    write_all(stop_, reinterpret_cast<const char*>(&one), sizeof one);
    reader_.join();
    return text_;
  }

 private:
  void pass_on() {
    std::array<char, 4096> buffer;
    while (true) {
      pollfd ready[] = {{read_end_, POLLIN, 0}, {stop_, POLLIN, 0}};
      poll(ready, 2, -1);
      if ((ready[0].revents & POLLIN) == 0 && ready[1].revents != 0) return;
      const ssize_t count = ::read(read_end_, buffer.data(), buffer.size());
      if (count <= 0) return;
      text_.append(buffer.data(), static_cast<std::size_t>(count));
      write_all(output_, buffer.data(), count);
    }
  }

  int read_end_ = -1, output_ = -1, stop_ = -1;
  std::string text_;
  std::thread reader_;
};

Archive::Archive(std::string path) : path_(std::move(path)) {
  constexpr std::string_view ending = ".tar.zst";
  require(path_.size() > ending.size() && path_.ends_with(ending),
          fmt::format("--archive {}", path_), "its name must end with .tar.zst");
  for (const char* program : {"tar", "zstd"})
    require(!find_program(program).empty(), fmt::format("--archive: no program {}", program),
            fmt::format("apt-get install {}", program));
  printed_ = std::make_unique<PrintedText>();
}

Archive::~Archive() = default;

void Archive::write(std::vector<std::pair<std::string, std::string>> members) {
  members.emplace_back("log.txt", printed_->stop());
  members.emplace_back("doctor.json", doctor_json());
  members.emplace_back("topology.json", topology_json());
  const TemporaryFolder folder;
  const std::string archive = folder.file("archive.tar.zst");
  std::vector<std::string> words = {"tar",          "--create",  "--file=" + archive, "--zstd",
                                    "--owner=0",    "--group=0", "--numeric-owner",   "--directory",
                                    folder.file("")};
  for (const auto& [name, content] : members) {
    write_file(folder.file(name), content);
    words.push_back(name);
  }
  require(run_program(words) == 0, fmt::format("--archive {}: tar has failed", path_),
          "see its message above; the folder for temporary files, TMPDIR, needs space");
  write_file(path_, read_text(archive, std::numeric_limits<std::int64_t>::max()));
}

void Archive::write_failed(const Error& error) {
  const bool is_one_of_several = launch_ranks({.ranks = 0}) > 0;
  if (error.kind() == ErrorKind::bad_input || (is_one_of_several && error.context().rank != 0))
    return;
  try {
    write({{"error.txt", std::string(error.what()) + "\n"},
           {"environment.json", json_text(environment_json())}});
  } catch (const std::exception& failure) {
    fmt::print(stderr, "lockstep: --archive {}: not written: {}\n", path_, failure.what());
  }
}

}  // namespace lockstep
