#include "cli/case_processes.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "cli/process.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

// The words that start this program again on the ranks of a case.
std::vector<std::string> replay_words(const CaseProcesses& processes, int ranks,
                                      const FuzzFiles& files, const std::string& path) {
  std::vector<std::string> words{"mpirun." + processes.transport};
  if (processes.transport == "openmpi")
    words.insert(words.end(), {"--allow-run-as-root", "--oversubscribe"});
  words.insert(words.end(),
               {"-np", std::to_string(ranks),
                std::filesystem::read_symlink("/proc/self/exe").string(), "fuzz", "--replay", path,
                "--files", files.folder, "--jitter", fmt::format("{}", processes.jitter_us),
                "--timeout", fmt::format("{}", processes.timeout_s)});
  if (!processes.fault.empty()) words.insert(words.end(), {"--fault", processes.fault});
  return words;
}

}  // namespace

CaseCheck check_case_on_processes(const FuzzCase& fuzz_case, const CaseProcesses& processes,
                                  const CaseOptions& options) {
  require(
      !drops_by_rank(fuzz_case.last()),
      fmt::format("--transport {} of a plan with --dropout-streams megatron", processes.transport),
      "it is trained several times, and processes are started once: use --transport threads");
  const CaseFolder folder;
  const FuzzFiles files = folder.files();
  const std::string path = files.folder + "/case.json", said = files.folder + "/said";
  write_files(fuzz_case, files);
  CaseCheck check = check_plans_before(fuzz_case, files, options);
  if (!check.differences.empty()) return check;
  write_file(path, case_json(fuzz_case));
  const int status =
      run_program(replay_words(processes, fuzz_case.last().ranks, files, path), said);
  require(status != 127,
          fmt::format("--transport {}: mpirun.{} is not on PATH", processes.transport,
                      processes.transport),
          "install it, or use --transport threads");
  constexpr std::int64_t most_bytes = 1 << 20;
  const std::string text = read_text(said, most_bytes);
  std::int64_t compared = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(compared_text))
      compared = std::stoll(line.substr(std::string_view(compared_text).size()));
    else if (status != 0 && !line.empty())
      check.differences.push_back(line);
  }
  check.compared += compared;
  check.has_ended = compared == 0;
  check.is_refused = std::filesystem::exists(files.refused());
  if ((check.has_ended || status != 0) && check.differences.empty())
    check.differences.push_back(fmt::format("ended with status {}", status));
  return check;
}

CaseCheck check_case_in_process(const FuzzCase& fuzz_case, const FuzzFiles& files,
                                const CaseOptions& options) {
  try {
    return check_plan(fuzz_case, fuzz_case.plans.size() - 1, files, options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bad_input) write_file(files.refused(), "");
    throw;
  }
}

}  // namespace lockstep
