#include "collectives/transport/mpi/group.h"

#include <thread>
#include <utility>

namespace lockstep {

std::byte* MpiGroup::scratch(Device& device, Count bytes) {
  // Kept for reuse: page faults of fresh memory cost more than the message.
  if (scratch_device_ != &device || scratch_.bytes() < bytes) {
    scratch_ = Memory(device, nullptr, MemoryUse::communication, bytes);
    scratch_device_ = &device;
  }
  return scratch_.data();
}

void MpiGroup::settle() {
  if (std::exchange(settled_, true)) return;
  board().notice().claim(board().world_rank(rank()));
  constexpr auto longer_than_a_look = std::chrono::milliseconds(20);
  std::this_thread::sleep_for(longer_than_a_look);
}

void MpiGroup::wait(int peer, const Call& call, MPI_Request& request) {
  wait(peer, call, [&] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "complete a message");
    return done != 0;
  });
}

void MpiGroup::make_progress(int peer) {
  int any = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, header_tag, comm_to(peer), &any, MPI_STATUS_IGNORE),
            "look for messages");
}

void MpiGroup::fail(int peer, const Error& error) {
  if (board().has_ended(peer) && board().notice().rank() < 0) return;
  board().notice().raise(board().world_rank(rank()), error);
  settle();
}

}  // namespace lockstep
