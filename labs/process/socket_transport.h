// A rank's end of the messages that the grader carries.
#pragma once

#include <memory>
#include <span>

#include "collectives/transport/transport.h"
#include "labs/process/wire.h"

namespace lockstep {

// Writes and reads all bytes. Throws Error (lost_rank) if the grader is gone.
void write_frame(Frame frame, std::span<const std::byte> content);
Frame read_frame();
void read_content(std::span<std::byte> into);

// The whole world.
std::unique_ptr<Transport> socket_transport(int rank, int size);

}  // namespace lockstep
