#include "labs/gradebook/grade_class.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "collectives/base/build_id.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"
#include "collectives/base/printable.h"
#include "labs/gradebook/kept_grades.h"
#include "labs/grader/export.h"
#include "labs/grader/regions.h"
#include "labs/grader/submission.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Eight ranks with 1 GiB each: what a hostile submission can take. With less for each grading, one
// submission could cost another its points.
constexpr double most_bytes_of_one = 8.0 * (1 << 30);
// A grading ends by itself, since what it runs is limited. If it does not, the others go on.
constexpr auto patience = std::chrono::minutes(10);
volatile sig_atomic_t is_stopped = 0;

// While it lives, SIGINT and SIGTERM only set `is_stopped`.
class StopSignals {
 public:
  StopSignals() {
    is_stopped = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { is_stopped = 1; };
    sigaction(SIGINT, &action, &before_[0]);
    sigaction(SIGTERM, &action, &before_[1]);
  }
  ~StopSignals() {
    sigaction(SIGINT, &before_[0], nullptr);
    sigaction(SIGTERM, &before_[1], nullptr);
  }
  StopSignals(const StopSignals&) = delete;

 private:
  std::array<struct sigaction, 2> before_{};
};

// The output folder, for one run at a time. Its gradings inherit the lock, so a run after one that
// was killed waits for those.
class LockedFolder {
 public:
  explicit LockedFolder(const std::string& path) {
    if (!fs::is_directory(path + "/records")) make_empty_folder(path);
    fs::create_directories(path + "/records");
    folder_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    require(folder_ >= 0, "cannot read " + printable(path));
    if (flock(folder_, LOCK_EX | LOCK_NB) == 0) return;
    fmt::print(stderr, "lockstep: waiting for another run that grades into {}\n", printable(path));
    if (flock(folder_, LOCK_EX) == 0) return;
    require(errno == EINTR, "cannot lock " + printable(path), std::strerror(errno));
    throw Error(ErrorKind::interrupted, "nothing is graded",
                {.hint = "the same command grades the class"});
  }
  ~LockedFolder() { close(folder_); }
  LockedFolder(const LockedFolder&) = delete;

 private:
  int folder_ = -1;
};

struct Waiting {
  const HandedIn* submission = nullptr;
  std::string place, key;
};

class ClassGrader {
 public:
  ClassGrader(const ClassFolder& all, const ClassOptions& options)
      : all_(all), options_(options), locked_(options.output) {}

  ClassGrading run() {
    for (const HandedIn& each : all_.handed_in) {
      Waiting waiting{.submission = &each, .place = place_of(each), .key = {}};
      waiting.key = key_of(each);
      if (is_kept(options_.output, waiting.place, waiting.key))
        ++result_.kept;
      else
        waiting_.push_back(std::move(waiting));
    }
    const std::size_t most = gradings_at_once();
    for (std::size_t next = 0; next < waiting_.size() || !running_.empty();) {
      if (is_stopped != 0) next = waiting_.size();
      if (next < waiting_.size() && running_.size() < most)
        start(waiting_[next++]);
      else if (!collect())
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    result_.is_interrupted = is_stopped != 0;
    return std::move(result_);
  }

 private:
  struct Running {
    const Waiting* waiting = nullptr;
    Clock::time_point since = Clock::now();
    bool is_ended = false;
  };

  static std::size_t gradings_at_once() {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    const int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    const double fit = available_bytes() / most_bytes_of_one;
    return static_cast<std::size_t>(std::max(1.0, std::min<double>(usable, fit)));
  }

  // Of all that a grade follows from.
  std::string key_of(const HandedIn& each) {
    std::string& of_lab = keys_of_labs_[each.lab->number];
    if (of_lab.empty()) {
      Key key;
      key.add(build_id()).add(std::to_string(options_.hint_level)).add(options_.secret);
      for (const char* name : {"lab.json", "functions.cc"})
        if (const std::string path = each.lab->folder + "/" + name; fs::exists(path))
          key.add(read_text(path, most_file_bytes));
      if (!each.lab->is_form())
        for (const LabFile& file : each.lab->files)
          key.add(cut(file, options_.source_folder, true));
      of_lab = key.text();
    }
    Key key;
    key.add(of_lab).add(each.student);
    std::vector<std::string> names;
    for (const LabFile& file : each.lab->files) names.push_back(file.name);
    if (each.lab->race) names.push_back(each.lab->race->file);
    for (const std::string& name : names) {
      try {
        key.add(read_submitted(all_.path + "/" + each.folder, name));
      } catch (const Error& error) {
        key.add("unreadable").add(error.what());
      }
    }
    return key.text();
  }

  // Compiles our solution once for all submissions of a lab.
  const std::string& reference_of(const Lab& lab) {
    References::mapped_type& made = references_[lab.number];
    if (!made.work && !lab.is_form()) {
      made.work = std::make_unique<WorkFolder>();
      made.library = build_reference(lab, options_.source_folder, *made.work);
    }
    return made.library;
  }

  void start(const Waiting& waiting) {
    const std::string& reference = reference_of(*waiting.submission->lab);
    forget_grade(options_.output, waiting.place);
    std::fflush(nullptr);
    const pid_t child = fork();
    require(child >= 0, "cannot start a process to grade a submission");
    if (child > 0) {
      running_[child] = {.waiting = &waiting};
      return;
    }
    // A group of its own, for Ctrl-C is for the whole class, and ends no grading halfway.
    setpgid(0, 0);
    int status = 1;
    try {
      grade_one(waiting, reference);
      status = 0;
    } catch (const std::exception& error) {
      fmt::print(stderr, "lockstep: {}: {}\n", printable(waiting.submission->folder), error.what());
    }
    _exit(status);
  }

  static std::string fault_of_files(const HandedIn& each) {
    try {
      for (const LabFile& file : each.lab->files) read_submitted(each.folder, file.name);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  // In a process of its own.
  void grade_one(const Waiting& waiting, const std::string& reference) const {
    const HandedIn& each = *waiting.submission;
    // Only a path without a link in any of its folders is read, from here: see read_submitted().
    fs::current_path(all_.path);
    const std::string unreadable = fault_of_files(each);
    Grade result;
    std::string status = status_unreadable;
    if (unreadable.empty()) {
      result = grade(*each.lab, each.folder,
                     {.source_folder = options_.source_folder,
                      .hint_level = options_.hint_level,
                      .secret = options_.secret,
                      .student = options_.secret.empty() ? "" : each.student,
                      .reference = reference});
      status = result.compiler_errors.empty() ? status_graded : status_not_compiling;
    } else {
      result = grade_without_points(*each.lab, unreadable);
    }
    write_grade(options_.output, waiting.place, result, waiting.key, status);
  }

  // Takes note of gradings that have ended; false if there was none.
  bool collect() {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    const auto found = running_.find(ended);
    if (found == running_.end()) {
      for (auto& [process, each] : running_)
        if (!each.is_ended && Clock::now() - each.since > patience) {
          each.is_ended = true;
          kill(-process, SIGKILL);
        }
      return false;
    }
    const bool is_graded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (is_graded)
      ++result_.graded;
    else
      result_.failed.push_back(fmt::format("{} has no grade: its grading {}",
                                           printable(found->second.waiting->submission->folder),
                                           found->second.is_ended ? "took too long" : "failed"));
    running_.erase(found);
    options_.show(result_.graded + static_cast<int>(result_.failed.size()),
                  static_cast<int>(waiting_.size()));
    return true;
  }

  struct Reference {
    std::unique_ptr<WorkFolder> work;
    std::string library;
  };
  using References = std::map<int, Reference>;

  const ClassFolder& all_;
  const ClassOptions& options_;
  LockedFolder locked_;
  std::map<int, std::string> keys_of_labs_;
  References references_;
  std::vector<Waiting> waiting_;
  std::map<pid_t, Running> running_;
  ClassGrading result_;
};

}  // namespace

ClassGrading grade_class(const ClassFolder& all, const ClassOptions& options) {
  const StopSignals stop;
  return ClassGrader(all, options).run();
}

}  // namespace lockstep
