// The process of one rank, seen from the grader: frames to and from it, and how it ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "labs/process/wire.h"

namespace lockstep {

class RankProcess {
 public:
  // Throws Error (bad_input) if the program cannot be started.
  RankProcess(const std::string& program, const std::string& library);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;

  int socket() const { return socket_; }
  bool has_output() const { return written_ < leaving_.size(); }
  // Adds to the output; flush() hands the socket as much of it as it takes.
  void write(Frame frame, const void* content, std::int64_t bytes);
  void flush();
  // Reads what is there. False at the end of what the process sends.
  bool fill();
  // Returns the next complete frame. A frame that none of our ranks would send is returned as a
  // `job`.
  std::optional<Frame> next(std::vector<std::byte>& content);

  // The size of the whole address space.
  std::int64_t memory_bytes() const;
  // Whether it sleeps or is stopped: it neither computes nor waits for a core.
  bool is_asleep() const;
  // Ends the process if it still lives.
  void end();
  struct End {
    std::string text;  // "has crashed: Segmentation fault"
    bool is_time_limit = false;
  };
  // Waits until it has ended by itself.
  End wait();

 private:
  void append(const void* data, std::size_t bytes);

  int socket_ = -1;
  pid_t process_ = -1;
  std::vector<std::byte> arriving_, leaving_;
  std::size_t written_ = 0;  // of `leaving_`
};

}  // namespace lockstep
