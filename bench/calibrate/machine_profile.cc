#include "bench/calibrate/machine_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr const char* calibrate_again = "write the file again with lockstep calibrate";

// Reads the values of one object of a profile.
class ProfileReader {
 public:
  ProfileReader(const ordered_json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    require(object_.is_object(), fmt::format("{} is not an object", where_), calibrate_again);
  }

  const ordered_json& value(const char* key) const {
    require(
        object_.contains(key), [&] { return fmt::format("{} has no \"{}\"", where_, key); },
        calibrate_again);
    return object_[key];
  }
  bool has(const char* key) const { return object_.contains(key); }
  ProfileReader object(const char* key) const {
    return {value(key), fmt::format("{}, \"{}\"", where_, key)};
  }
  std::string text(const char* key) const {
    const ordered_json& found = value(key);
    refuse_unless(found.is_string(), key);
    return found.get<std::string>();
  }
  double number(const char* key, double least) const {
    const ordered_json& found = value(key);
    refuse_unless(found.is_number(), key);
    const double number = found.get<double>();
    refuse_unless(std::isfinite(number) && number >= least, key);
    return number;
  }
  double seconds(const char* key) const {
    const double seconds = number(key, 0);
    refuse_unless(seconds > 0, key);
    return seconds;
  }
  Count count(const char* key) const {
    const ordered_json& found = value(key);
    refuse_unless(found.is_number_integer() && found.get<Count>() > 0, key);
    return found.get<Count>();
  }
  // Calls each(ProfileReader) for every entry of a list.
  template <typename Each>
  void for_each(const char* key, Each each) const {
    const ordered_json& list = value(key);
    refuse_unless(list.is_array() && !list.empty(), key);
    for (std::size_t i = 0; i < list.size(); ++i)
      each(ProfileReader(list[i], fmt::format("{}, \"{}\" entry {}", where_, key, i)));
  }
  void refuse_unless(bool fits, const char* key) const {
    require(
        fits, [&] { return fmt::format("{}: \"{}\" is {}", where_, key, shown(value(key))); },
        calibrate_again);
  }

 private:
  const ordered_json& object_;
  std::string where_;
};

OwnSeconds own_seconds(const ProfileReader& entry, bool is_of_gpu) {
  for (const char* key : {"together_s", "in_turns_s", "issue_s"})
    if (entry.has(key)) entry.refuse_unless(is_of_gpu == (std::string_view(key) == "issue_s"), key);
  if (is_of_gpu)
    return {.alone = entry.seconds("alone_s"),
            .issue = entry.has("issue_s") ? entry.seconds("issue_s") : 0};
  OwnSeconds own{.alone = entry.seconds("alone_s"), .together = entry.seconds("together_s")};
  if (entry.has("in_turns_s")) own.in_turns = entry.seconds("in_turns_s");
  return own;
}

MeasuredKernel measured_kernel(const ProfileReader& entry, bool is_of_gpu) {
  MeasuredKernel kernel{.name = entry.text("name"),
                        .dtype = dtype_from_name(entry.text("dtype")),
                        .operations = entry.number("operations", 0),
                        .bytes = entry.number("bytes", 0),
                        .seconds = own_seconds(entry, is_of_gpu)};
  const ordered_json& shape = entry.value("shape");
  entry.refuse_unless(shape.is_array() && shape.size() == kernel.shape.size(), "shape");
  for (std::size_t i = 0; i < kernel.shape.size(); ++i) {
    entry.refuse_unless(shape[i].is_number_integer() && shape[i].get<Count>() > 0, "shape");
    kernel.shape[i] = shape[i];
  }
  return kernel;
}

// Least squares of (alpha + bytes beta) / seconds - 1.
void fit(const std::vector<const MeasuredCollective*>& sizes, FittedCollective& fitted) {
  double ones = 0, ones_bytes = 0, bytes_bytes = 0, ones_seconds = 0, bytes_seconds = 0;
  for (const MeasuredCollective* size : sizes) {
    const double one = 1 / size->seconds, bytes = size->bytes / size->seconds;
    ones += one * one;
    ones_bytes += one * bytes;
    bytes_bytes += bytes * bytes;
    ones_seconds += one;
    bytes_seconds += bytes;
  }
  const double determinant = ones * bytes_bytes - ones_bytes * ones_bytes;
  double alpha = ones_seconds / ones, beta = 0;
  if (sizes.size() > 1 && determinant > 0) {
    alpha = (ones_seconds * bytes_bytes - bytes_seconds * ones_bytes) / determinant;
    beta = (ones * bytes_seconds - ones_bytes * ones_seconds) / determinant;
  }
  if (beta < 0) alpha = ones_seconds / ones, beta = 0;
  if (alpha < 0) alpha = 0, beta = bytes_seconds / bytes_bytes;
  fitted.alpha_s = alpha;
  fitted.beta_s_per_byte = beta;
}

}  // namespace

int MachineProfile::processors(int ranks) const {
  if (!is_of_gpu()) return cores;
  if (!has_own_gpus()) return 1;
  require(
      ranks <= gpus, [&] { return fmt::format("{} ranks on {} GPUs", ranks, gpus); },
      "some GPUs would have several ranks, which was not measured: use at most as many as "
      "GPUs, or let all share one, with CUDA_VISIBLE_DEVICES=0 in calibrate, plan and train");
  return ranks;
}

std::vector<FittedCollective> fitted_collectives(const MachineProfile& profile) {
  std::map<std::tuple<std::string, std::string, std::string, int>,
           std::vector<const MeasuredCollective*>>
      by_collective;
  for (const MeasuredCollective& c : profile.collectives)
    by_collective[{c.transport, c.operation, c.algorithm, c.ranks}].push_back(&c);
  std::vector<FittedCollective> all;
  for (const auto& [collective, sizes] : by_collective) {
    const auto& [transport, operation, algorithm, ranks] = collective;
    fit(sizes, all.emplace_back(FittedCollective{transport, operation, algorithm, ranks}));
  }
  return all;
}

ordered_json read_machine_file(const std::string& path) {
  constexpr std::int64_t most_bytes = 64 << 20;
  return read_json<ordered_json>(path, most_bytes);
}

MachineProfile read_machine_profile(const std::string& path) {
  return machine_profile(read_machine_file(path), path);
}

MachineProfile machine_profile(const ordered_json& json, const std::string& path) {
  const ProfileReader file(json, printable(path));
  const std::string schema = file.text("schema");
  require(
      schema == "lockstep.machine/1",
      [&] { return fmt::format("{} has the schema {}", printable(path), printable(schema)); },
      "a profile of a machine is what lockstep calibrate writes");
  const ProfileReader environment = file.object("environment");
  MachineProfile profile{.host = environment.text("host"),
                         .processor = environment.text("processor"),
                         .time = environment.text("time"),
                         .cores = static_cast<int>(environment.count("cores"))};
  if (file.has("gpus")) {
    profile.gpus = static_cast<int>(file.count("gpus"));
    profile.gpu = environment.object("gpu").text("name");
    const ProfileReader alignment = file.object("alignment");
    const double of_64 = alignment.number("unaligned_64_cost", 0);
    profile.alignment = {.dtype = dtype_from_name(alignment.text("dtype")),
                         .of_64 = of_64,
                         .of_8 = alignment.number("unaligned_8_cost", of_64)};
  }
  const ProfileReader between = file.object("between_kernels");
  if (profile.is_of_gpu())
    profile.between_kernels.issue = between.seconds("issue_s");
  else
    profile.between_kernels = own_seconds(between, false);
  file.for_each("kernels", [&](const ProfileReader& entry) {
    profile.kernels.push_back(measured_kernel(entry, profile.is_of_gpu()));
  });
  file.for_each("collectives", [&](const ProfileReader& entry) {
    // A file of an older version has none.
    const std::string transport = entry.has("transport") ? entry.text("transport") : "threads";
    entry.refuse_unless(entry.count("ranks") > 1, "ranks");
    entry.refuse_unless(profile.is_of_gpu() ? transport == profile.transport_of_threads()
                                            : std::ranges::count(host_transports, transport) > 0,
                        "transport");
    profile.collectives.push_back({.transport = transport,
                                   .operation = entry.text("operation"),
                                   .algorithm = entry.text("algorithm"),
                                   .ranks = static_cast<int>(entry.count("ranks")),
                                   .bytes = entry.number("bytes", 1),
                                   .seconds = entry.seconds("seconds")});
  });
  return profile;
}

void require_this_machine(const MachineProfile& profile, const ordered_json& environment,
                          const std::string& path) {
  const auto is_same = [&](const char* what, const auto& there, const auto& here) {
    require(
        there == here,
        [&] {
          return fmt::format("{} was measured on another machine: its {} is {}, this one's is {}",
                             printable(path), what, there, here);
        },
        profile.is_of_gpu() ? "measure this one: lockstep calibrate --device cuda"
                            : "measure this one: lockstep calibrate");
  };
  is_same("host", printable(profile.host), printable(environment["host"].get<std::string>()));
  is_same("processor", printable(profile.processor),
          printable(environment["processor"].get<std::string>()));
  is_same("number of cores", profile.cores, environment["cores"].get<int>());
  if (!profile.is_of_gpu()) return;
  is_same("GPU", printable(profile.gpu), printable(cuda_gpu().name));
  is_same("number of GPUs", profile.gpus, cuda_gpus());
}

ordered_json machine_json(const MachineProfile& profile) {
  const auto own = [](const OwnSeconds& seconds) {
    ordered_json json;
    for (const auto& [key, value] : {std::pair{"alone_s", seconds.alone},
                                     {"together_s", seconds.together},
                                     {"in_turns_s", seconds.in_turns},
                                     {"issue_s", seconds.issue}})
      if (value > 0) json[key] = value;
    return json;
  };
  ordered_json json;
  if (profile.is_of_gpu()) {
    json["gpus"] = profile.gpus;
    json["alignment"] = {{"dtype", name_of(profile.alignment.dtype)},
                         {"unaligned_64_cost", profile.alignment.of_64},
                         {"unaligned_8_cost", profile.alignment.of_8}};
  }
  json["between_kernels"] = own(profile.between_kernels);
  for (const MeasuredKernel& kernel : profile.kernels) {
    ordered_json& entry =
        json["kernels"].emplace_back(ordered_json{{"name", kernel.name},
                                                  {"dtype", name_of(kernel.dtype)},
                                                  {"shape", kernel.shape},
                                                  {"operations", kernel.operations},
                                                  {"bytes", kernel.bytes}});
    entry.update(own(kernel.seconds));
  }
  for (const MeasuredCollective& c : profile.collectives)
    json["collectives"].push_back({{"transport", c.transport},
                                   {"operation", c.operation},
                                   {"algorithm", c.algorithm},
                                   {"ranks", c.ranks},
                                   {"bytes", c.bytes},
                                   {"seconds", c.seconds}});
  for (const FittedCollective& fit : fitted_collectives(profile))
    json["fitted_collectives"].push_back({{"transport", fit.transport},
                                          {"operation", fit.operation},
                                          {"algorithm", fit.algorithm},
                                          {"ranks", fit.ranks},
                                          {"alpha_s", fit.alpha_s},
                                          {"beta_s_per_byte", fit.beta_s_per_byte}});
  return json;
}

}  // namespace lockstep
