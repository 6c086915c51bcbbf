// PyTorch in a process of its own, which computes when it is asked to. So it and our kernels are
// measured in turn, and disturbances of the machine affect both alike.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace lockstep {

class TorchPeer {
 public:
  // Starts `script`, torch_attention.py, with that Python. Throws Error (bad_input) if it cannot.
  TorchPeer(const std::string& python, const std::string& script);
  ~TorchPeer();
  TorchPeer(const TorchPeer&) = delete;

  // Sends a line and returns the answer. Throws Error (lost_rank) if the process has ended.
  std::string ask(const std::string& line);
  // Seconds of a forward and of a backward.
  std::pair<double, double> run();

 private:
  pid_t child_ = -1;
  int channel_ = -1;  // its standard input and output
};

}  // namespace lockstep
