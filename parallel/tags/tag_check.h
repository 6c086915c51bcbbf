// Follows the tags of one rank's tensors through a training run: operations and collectives change
// them, and an operation that a tag does not allow is an error that names tensor, axis and place. A
// missing reduction is thus found even if every number is right.
//
// Work on a stream changes tags when it is waited for: until then a result keeps its old tags.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/observer.h"
#include "models/backend.h"
#include "models/parameters.h"
#include "parallel/tags/tag_axes.h"
#include "parallel/tags/tag_map.h"

namespace lockstep {

class TagCheck final : public CollectiveObserver {
 public:
  // `world`: the group of all ranks. The plan must outlive it.
  TagCheck(const Plan& plan, int rank, const void* world);

  // Only memory of this device has tags.
  void tag_memory_of(const Device& device) { device_ = &device; }
  void observe(const Parameters& parameters);
  // How many tags were checked.
  std::int64_t checked() const { return checked_; }

  // Operations of the device.
  void released(const std::byte* memory, Count bytes);
  void copied(Slice into, Slice from);
  void zeroed(Slice data);
  void added(Slice into, Slice from);

  // Collectives.
  void made_group(const void* whole, std::span<const int> members, const void* group) override;
  void begin(const void* group, Operation operation, Slice data) override;
  void end() override { resume(); }
  void announce(const void* group, Operation operation, Slice from, Slice into) override;
  void added_norm(const void* group) override;
  void begin_work(const void* stream, std::int64_t number) override;
  void end_work() override;
  void waited(const void* stream, std::int64_t number) override;

  // Operations of the backend, one at a time: device operations in between belong to it.
  void begin_operation(const char* name);
  void end_operation() { resume(); }
  const TagAxes& axes() const { return axes_; }
  // An operand, for reading. `role` is its name in an error.
  Tag read(Slice slice, const char* role);
  Tag read(const Matrix& matrix, const char* role);
  using Rule = std::optional<Along> (*)(Along, Along);
  // The tp placement of the parameter to whose gradient this slice belongs.
  Tag of_gradient(Slice gradient);
  // Applies the rule along every axis. Throws Error (wrong_result) where it has no result.
  Tag combine(Rule rule, const Tag& a, const Tag& b, const char* what);
  // Throws if `is_wrong` holds along any axis.
  void refuse(const Tag& tag, const char* role, bool (*is_wrong)(const TagAxis&, Along));
  void write(Slice slice, Tag tag);
  void add(Slice slice, Tag tag);
  // Checks a part of the gradients' sum of squares, and a step of the optimizer.
  void squared(Slice gradients);
  void stepped(Slice value, Slice gradient);

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
  struct Norm {
    unsigned owed = 0;                            // axes along which it is not yet summed
    std::map<std::size_t, std::string> repeated;  // by axis: a gradient that every rank counts
    bool is_complete = true;                      // if true, a new norm begins
  };

  // Changes tags now, or when the work on this thread is waited for.
  void change(std::function<void()> how);
  static void suspend();
  static void resume();

  bool is_tagged(Slice slice) const { return slice.device == device_ && slice.count > 0; }
  std::vector<int> ranks_of(const void* group) const;
  // 0 if the group is not a product of axes.
  unsigned along(const void* group) const;
  void summed(unsigned group, Operation operation, Slice from, Slice into);
  void gathered(unsigned group, Slice from, Slice into);
  void scattered(unsigned group, Slice into);
  void exchanged(unsigned group, Slice from, Slice into);
  void message(Slice sent, Slice received);

  const Memory* memory_of(Slice slice);
  std::string name_of(Slice slice, const char* role, const Tag& tag);
  Tag joined(const std::vector<TagMap::Piece>& pieces) const;
  // The tp placement of a parameter's values.
  Tag of_parameter(const Parameter& parameter, const std::vector<Parameter>& whole) const;
  void add_to(Slice slice, const Tag& tag);
  [[noreturn]] void fail(std::size_t axis, const std::string& what, const std::string& hint) const;
  bool has_axis(unsigned group, std::size_t axis) const { return (group >> axis & 1U) != 0; }

  const Plan& plan_;
  int rank_;
  TagAxes axes_;
  const Device* device_ = nullptr;
  const std::thread::id thread_ = std::this_thread::get_id();
  const Parameters* parameters_ = nullptr;
  std::vector<Tag> of_parameters_;
  std::map<const std::byte*, Memory> memory_;
  std::int64_t memory_changes_ = -1;

  TagMap tags_;
  Norm norm_;
  const char* operation_ = "";
  std::int64_t checked_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::map<const void*, std::vector<int>> groups_;
  std::map<const void*, std::vector<Work>> works_;  // by stream
};

}  // namespace lockstep
