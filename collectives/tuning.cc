#include "collectives/tuning.h"

namespace lockstep {

std::string_view Tuning::find(Operation operation, const Communicator& comm, Count bytes) const {
  const TunedChoice* best = nullptr;
  for (const TunedChoice& choice : choices) {
    const bool fits = choice.operation == operation && choice.ranks == comm.size() &&
                      choice.transport == comm.transport().name() && choice.from_bytes <= bytes;
    if (fits && (!best || choice.from_bytes >= best->from_bytes)) best = &choice;
  }
  return best ? std::string_view(best->algorithm) : std::string_view();
}

}  // namespace lockstep
