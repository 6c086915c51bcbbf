// What the processes of a world claim when they join it: the command, its options, files and
// environment. The claims must agree, or the processes would train different models together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// "--lr" is "0.001". Neither contains a zero byte.
struct Claim {
  std::string name, value;
};
using Claims = std::vector<Claim>;

// The claim whose difference makes all others meaningless.
inline constexpr std::string_view command_claim = "the command";

// Returns a file's content as the value of a claim, since hosts may keep the file at different
// places. "none" for an empty path. Reads all of it; throws Error (bad_input) naming a file that
// cannot be read.
std::string contents_of(const std::string& path);

// Equal for equal claims in the same order.
std::uint64_t digest(const Claims& claims);
// For sending; unpacked() is the inverse.
std::string packed(const Claims& claims);
Claims unpacked(std::string_view text);

// "--lr is 0.001 on ranks 0, 2-3 and 0.003 on rank 1; ...": each claim that differs between ranks;
// "" if there is none.
std::string disagreement(std::span<const Claims> by_rank);

// "rank 1 refuses its input: TEXT; ...", for ranks with a text; only TEXT if all ranks have the same.
std::string refusals(std::span<const std::string> by_rank);

}  // namespace lockstep
