// The label of messages by which ranks exchange what a run has measured. Neither results nor pictures
// of messages count them.
#pragma once

namespace lockstep {

inline constexpr const char* report_label = "report";

}  // namespace lockstep
