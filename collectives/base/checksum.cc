#include "collectives/base/checksum.h"

#include <xxhash.h>

namespace lockstep {

struct Checksum::State {
  XXH3_state_t xxh;
};

std::uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Checksum::~Checksum() = default;
void Checksum::add(std::string_view bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}
std::uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace lockstep
