// The tags of one rank's tensors. Operations of a device and of a backend change them, and what a tag
// does not allow is an error that names tensor, axis and place.
//
// Work on a stream changes tags when it is waited for: until then a result keeps its old tags.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "models/backend.h"
#include "models/parameters.h"
#include "parallel/tags/tag_axes.h"
#include "parallel/tags/tag_map.h"

namespace lockstep {

class TagState {
 public:
  // The plan must outlive it.
  TagState(const Plan& plan, int rank) : plan_(plan), rank_(rank), axes_(plan) {}

  // Only memory of this device has tags.
  void tag_memory_of(const Device& device) { device_ = &device; }
  void observe(const Parameters& parameters, ParameterSet set);
  const Plan& plan() const { return plan_; }
  int rank() const { return rank_; }
  const TagAxes& axes() const { return axes_; }
  TagMap& tags() { return tags_; }
  bool is_tagged(Slice slice) const { return slice.device == device_ && slice.count > 0; }
  // How many tags were checked.
  std::int64_t checked() const { return checked_; }
  void count_check() { ++checked_; }

  // Operations of the device.
  void released(const std::byte* memory, Count bytes);
  void copied(Slice into, Slice from);
  void zeroed(Slice data);
  void added(Slice into, Slice from);

  // Changes tags now, or when the work on this thread is waited for.
  void change(std::function<void()> how);
  // See CollectiveObserver.
  void begin_work(const void* stream, std::int64_t number);
  void end_work();
  void waited(const void* stream, std::int64_t number);
  void goes_on() { thread_ = std::this_thread::get_id(); }

  // Operations of the backend or collectives, one at a time: device operations in between belong to
  // it.
  void begin_operation(const char* name);
  void name_operation(const char* name) { operation_ = name; }
  const char* operation() const { return operation_; }
  static void suspend();
  static void resume();

  // An operand, for reading. `role` is its name in an error.
  Tag read(Slice slice, const char* role);
  Tag read(const Matrix& matrix, const char* role);
  Tag joined(const std::vector<TagMap::Piece>& pieces) const;
  // The tp placement of a parameter's values, and of the parameter to whose gradient a slice belongs.
  const Tag& of_parameter(int parameter) const {
    return of_parameters_[static_cast<std::size_t>(parameter)];
  }
  Tag of_gradient(Slice gradient) {
    const Memory* const memory = memory_of(gradient);
    return memory ? of_parameter(memory->parameter) : Tag{};
  }
  // That of a gradient which is complete without a row of a tensor with this tag.
  Tag without_rows(Slice gradient, Tag tag);
  using Rule = std::optional<Along> (*)(Along, Along);
  // Whether ranks along the axis have different experts, and the parameter is one of those.
  bool is_divided(int parameter, std::size_t axis) const;
  // Applies the rule along every axis. Throws Error (wrong_result) where it has no result.
  Tag combine(Rule rule, const Tag& a, const Tag& b, const char* what);
  // Throws if `is_wrong` holds along any axis.
  void refuse(const Tag& tag, const char* role, bool (*is_wrong)(const TagAxis&, Along));
  void write(Slice slice, Tag tag);
  void add(Slice slice, Tag tag);

  // For errors.
  std::string name_of(Slice slice, const char* role, const Tag& tag);
  [[noreturn]] void fail(std::size_t axis, const std::string& what, const std::string& hint) const;

  // What the work of a stream does to tags.
  struct Work {
    std::int64_t number;
    std::vector<std::function<void()>> changes;
  };

 private:
  struct Memory {  // of a parameter
    const std::byte* end;
    int parameter;
    bool is_gradient;
  };
  // Parameters are numbered through all sets.
  struct Observed {
    const Parameters* parameters;
    ParameterSet set;
    int first;
  };
  const Observed& set_of(int parameter) const;
  const Parameter& parameter(int number) const;

  const Memory* memory_of(Slice slice);
  Tag tag_of(const Parameter& parameter, const std::vector<Parameter>& whole) const;
  void add_to(Slice slice, const Tag& tag);

  const Plan& plan_;
  int rank_;
  TagAxes axes_;
  const Device* device_ = nullptr;
  std::atomic<std::thread::id> thread_ = std::this_thread::get_id();  // that does the rank's work
  std::vector<Observed> observed_;
  std::vector<Tag> of_parameters_;
  std::map<const std::byte*, Memory> memory_;
  std::int64_t memory_changes_ = -1;

  TagMap tags_;
  const char* operation_ = "";
  std::int64_t checked_ = 0;

  std::mutex mutex_;                                // of what follows
  std::map<const void*, std::vector<Work>> works_;  // by stream
};

}  // namespace lockstep
