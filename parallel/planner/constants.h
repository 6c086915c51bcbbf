// The numbers of the cost model, as its data files state them: each with a unit and a source. The
// code has no rates, latencies or efficiencies of its own.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// A number that T takes from a file: its name and unit there. A fraction lies between 0 and 1.
template <typename T>
struct ConstantField {
  std::string_view name, unit;
  double T::*value;
  bool may_be_absent = false;  // 0 then
};

// A rule that T takes from a file: true or false.
template <typename T>
struct RuleField {
  std::string_view name;
  bool T::*value;
};

// A file of constants, {"schema", "name", "constants": {name: {"value", "unit", "source"}}, ...}.
// Throws Error (bad_input) that names the file if it is not JSON, has another schema or a key not
// in `keys`, or if a constant lacks its value, unit or source.
nlohmann::ordered_json read_constants_file(const std::string& path, std::string_view schema,
                                           const std::vector<std::string_view>& keys);

// Sets the field's value from the file. Throws Error (bad_input) naming file and constant if it is
// missing, not a finite number of at least 0, above 1 for a fraction, not whole for a count, or in
// another unit.
void read_constant(const nlohmann::ordered_json& file, const std::string& path,
                   std::string_view name, std::string_view unit, bool may_be_absent, double& value);
// Throws Error (bad_input) if the file has a constant or a rule that nothing reads.
void refuse_unknown(const nlohmann::ordered_json& file, const std::string& path, const char* group,
                    const std::vector<std::string_view>& known);

template <typename T>
void read_fields(const nlohmann::ordered_json& file, const std::string& path,
                 const std::vector<ConstantField<T>>& fields, T& result) {
  std::vector<std::string_view> known;
  for (const ConstantField<T>& field : fields) {
    known.push_back(field.name);
    read_constant(file, path, field.name, field.unit, field.may_be_absent, result.*field.value);
  }
  refuse_unknown(file, path, "constants", known);
}

// The file of that name in a folder of installed files, or the file at that path if the name ends
// in .json. Throws Error (bad_input) that lists the installed ones.
std::string constants_path(const std::string& folder, const std::string& name_or_path,
                           std::string_view what);

}  // namespace lockstep
