#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/burn_in/findings.h"
#include "bench/results/environment.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json machines_json(const BurnInRun& run, const std::vector<Finding>& findings) {
  ordered_json hosts = ordered_json::array();
  for (const HostVerdict& each : verdicts_of(run, findings)) {
    ordered_json host = {{"host", each.host}, {"verdict", name_of(each.verdict)}};
    for (std::size_t rank = 0; rank < run.machines.size(); ++rank) {
      const RankMachine& machine = run.machines[rank];
      if (machine.site.host != each.host) continue;
      host["processor"] = machine.processor;
      host["cores"] = machine.cores;
      host["gpus"] = machine.gpus;
      host["memory_bytes"] = machine.memory_bytes;
      host["ranks"].push_back({{"rank", rank}, {"device", machine.site.device}});
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

ordered_json findings_json(const std::vector<Finding>& findings) {
  ordered_json list = ordered_json::array();
  for (const Finding& each : findings)
    list.push_back({{"code", each.code},
                    {"verdict", name_of(each.verdict)},
                    {"hosts", each.hosts},
                    {"text", each.text},
                    {"next", each.next}});
  return list;
}

}  // namespace

std::vector<BurnInRow> rows_of(const BurnInRun& run, const BurnInOptions& options) {
  std::vector<BurnInRow> rows;
  const std::size_t ranks = run.machines.size();
  const auto add = [&](const std::string& name, const Series& times, const std::string& host,
                       std::map<std::string, double> counters) {
    rows.push_back(
        {.row = {.name = name, .seconds = &times.values(), .counters = std::move(counters)},
         .host = host});
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string& host = run.machines[rank].site.host;
    const auto size = static_cast<double>(options.product_size);
    const double typical = percentile(run.products[rank].values(), 0.5),
                 bytes = static_cast<double>(options.copy_bytes);
    add(fmt::format("burn_in/product/ranks:{}/size:{}/rank:{}", ranks, options.product_size, rank),
        run.products[rank], host, {{"gflop_per_s", 2 * size * size * size / typical / 1e9}});
    add(fmt::format("burn_in/copy/ranks:{}/bytes:{}/rank:{}", ranks, options.copy_bytes, rank),
        run.copies[rank], host,
        {{"bytes", bytes},
         {"gb_per_s", 2 * bytes / percentile(run.copies[rank].values(), 0.5) / 1e9}});
  }
  for (std::size_t size = 0; size < run.all_reduces.size(); ++size)
    add(fmt::format("burn_in/all_reduce/{}/ranks:{}/bytes:{}", run.transport, ranks,
                    options.all_reduce_bytes[size]),
        run.all_reduces[size], "",
        {{"bytes", static_cast<double>(options.all_reduce_bytes[size])}});
  for (const TimedRow& link : rows_of(run.links, options.pairs))
    rows.push_back({.row = link, .host = ""});
  return rows;
}

std::string burn_in_json(const BurnInRun& run, const BurnInOptions& options,
                         const std::vector<Finding>& findings, const LaunchOptions& world) {
  std::vector<TimedRow> rows;
  for (const BurnInRow& each : rows_of(run, options)) rows.push_back(each.row);
  auto file =
      timed_rows_json(rows, {{"lockstep.environment", json_line(environment_json(world.device))},
                             {"lockstep.clock", std::string(name_of(world.clock))},
                             {"lockstep.device", std::string(options.device->name())}});
  file["passes"] = run.passes;
  file["seconds"] = run.seconds;
  file["steps_compared"] = run.steps_compared;
  file["verdict"] = name_of(verdict_of(findings));
  file["hosts"] = machines_json(run, findings);
  file["findings"] = findings_json(findings);
  add_links(file, run.links, options.pairs);
  return json_text(file);
}

}  // namespace lockstep
