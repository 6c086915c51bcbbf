// How the members of a new group find each other inside one process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

// The first member creates the group, the others join it. Thread-safe.
template <typename Group>
class Subgroups {
 public:
  template <typename Make>
  std::shared_ptr<Group> join(int rank, const std::vector<int>& members, Make make) {
    const std::lock_guard lock(mutex_);
    const std::int64_t call = calls_[{members, rank}]++;
    const auto entry = joining_.try_emplace({members, call}).first;
    Joining& joining = entry->second;
    if (!joining.group) joining.group = make();
    auto group = joining.group;
    if (++joining.joined == members.size()) joining_.erase(entry);
    return group;
  }

 private:
  struct Joining {
    std::shared_ptr<Group> group;
    std::size_t joined = 0;
  };
  std::mutex mutex_;
  // One rank may be several groups ahead of another: the n-th calls of all members belong together.
  std::map<std::pair<std::vector<int>, std::int64_t>, Joining> joining_;
  std::map<std::pair<std::vector<int>, int>, std::int64_t> calls_;
};

}  // namespace lockstep
