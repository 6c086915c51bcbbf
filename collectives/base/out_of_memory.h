// The error of an allocation that says how much was asked for, and for what.
#pragma once

#include <memory>
#include <new>
#include <string>

namespace lockstep {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string text)
      : text_(std::make_shared<const std::string>(std::move(text))) {}
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_;  // copying an exception may not throw
};

}  // namespace lockstep
