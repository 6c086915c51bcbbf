#include "cli/result_formats.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/results/bench_formats.h"
#include "bench/results/train_formats.h"
#include "cli/command.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"

namespace lockstep {

void ResultFormats::add(CLI::App& app) {
  const std::string group(files_group);
  app.add_option(
         "--csv", csv,
         "write the results as CSV: a line for each point and repetition, or for each step, "
         "with its ranks, bytes and so on in columns of their own")
      ->group(group);
  app.add_option("--junit", junit,
                 "write JUnit XML: wrong elements, numbers that differ from their closed forms and "
                 "slow ranks are failures")
      ->group(group);
  app.add_option("--prometheus", prometheus,
                 "write a few metrics for the textfile collector of node_exporter; the name must "
                 "end with .prom")
      ->group(group);
  app.add_option("--archive", archive,
                 "write one file, .tar.zst, with the results in all formats, what was printed, the "
                 "environment and what doctor finds")
      ->group(group);
}

void ResultFormats::check(std::vector<std::string> outputs,
                          const std::vector<std::string>& inputs) {
  outputs.insert(outputs.end(), {csv, junit, prometheus, archive});
  check_outputs(outputs, inputs);
  std::error_code none;
  require(prometheus.empty() || std::filesystem::path(prometheus).extension() == ".prom" ||
              (std::filesystem::exists(prometheus, none) &&
               !std::filesystem::is_regular_file(prometheus, none)),
          fmt::format("--prometheus {}", prometheus),
          "its name must end with .prom: node_exporter reads no other files");
  if (!archive.empty()) archive_ = std::make_shared<Archive>(archive);
}

bool ResultFormats::any() const {
  return !csv.empty() || !junit.empty() || !prometheus.empty() || !archive.empty();
}

namespace {

nlohmann::ordered_json parsed(const std::string& result) {
  return parse_json<nlohmann::ordered_json>(result, "the result", most_result_values);
}

struct FormatTexts {
  std::string csv, junit, prometheus, environment;
};

// Of a result of training, or of a benchmark.
FormatTexts texts_of(const nlohmann::ordered_json& file) {
  if (file.contains("config"))
    return {train_csv(file), train_junit(file), train_prometheus(file),
            json_line(file.at("environment"))};
  return {bench_csv(file), bench_junit(file), bench_prometheus(file),
          file.at("context").at("lockstep.environment")};
}

}  // namespace

void ResultFormats::write_texts(const std::string& result) const {
  if (csv.empty() && junit.empty() && prometheus.empty()) return;
  const nlohmann::ordered_json file = parsed(result);
  const FormatTexts texts = texts_of(file);
  if (!csv.empty()) write_file(csv, texts.csv);
  if (!junit.empty()) write_file(junit, texts.junit);
  if (!prometheus.empty()) write_file(prometheus, texts.prometheus);
}

void ResultFormats::write_archive(const std::string& result) {
  if (!archive_) return;
  const nlohmann::ordered_json file = parsed(result);
  const FormatTexts texts = texts_of(file);
  archive_->write({{"result.json", result},
                   {"result.csv", texts.csv},
                   {"result.xml", texts.junit},
                   {"result.prom", texts.prometheus},
                   {"environment.json", texts.environment + "\n"}});
}

}  // namespace lockstep
