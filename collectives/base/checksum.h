// Checksums of files: XXH3 with 64 bits, https://xxhash.com.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace lockstep {

std::uint64_t checksum(std::string_view bytes);

// The same for bytes that come in parts.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  void add(std::string_view bytes);
  // The checksum of all bytes added so far.
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
