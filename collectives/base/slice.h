// An untyped view of memory on some device, which algorithms cut and hand on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/base/dtype.h"

namespace lockstep {

class Device;
Device& host_device();

// `count` elements of `dtype` at `data` on `device`. A view: it owns nothing.
struct Slice {
  std::byte* data = nullptr;
  Count count = 0;
  DType dtype = DType::f32;
  Device* device = nullptr;

  Count bytes() const { return count * element_bytes(dtype); }
  // Elements offset .. offset + length - 1.
  Slice part(Count offset, Count length) const {
    return {data + offset * element_bytes(dtype), length, dtype, device};
  }
  Slice first(Count length) const { return part(0, length); }
};

template <typename T>
Slice host_slice(std::span<T> values) {
  return {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), dtype_of<T>(),
          &host_device()};
}

template <typename T>
std::span<T> host_span(Slice slice) {
  return {reinterpret_cast<T*>(slice.data), static_cast<std::size_t>(slice.count)};
}

// `count` elements in `parts` nearly equal parts: the first count % parts of them have one more.
class Parts {
 public:
  Parts(Count count, int parts) : count_(count), parts_(parts) {}

  // Where part i begins, 0 <= i <= parts.
  Count offset(int i) const { return i * (count_ / parts_) + std::min<Count>(i, count_ % parts_); }
  // Elements of part i. Any i: it wraps around.
  Count operator[](int i) const { return range(wrapped(i), 1); }
  // Elements of parts first .. first + number - 1. No wrapping.
  Count range(int first, int number) const { return offset(first + number) - offset(first); }
  // The same, but wraps around after the last part.
  Count around(int first, int number) const {
    const int begin = wrapped(first), to_the_end = std::min(number, parts_ - begin);
    return range(begin, to_the_end) + range(0, number - to_the_end);
  }
  Count largest() const { return (count_ + parts_ - 1) / parts_; }
  int wrapped(int i) const { return (i % parts_ + parts_) % parts_; }

 private:
  Count count_;
  int parts_;
};

// The parts of a slice. chunk[i] takes any i and wraps around, so ring algorithms need no modulo.
class Chunks {
 public:
  Chunks(Slice whole, int parts) : whole_(whole), parts_(whole.count, parts) {}

  Slice operator[](int i) const { return range(parts_.wrapped(i), 1); }
  // Parts first .. first + number - 1 as one slice. No wrapping.
  Slice range(int first, int number) const {
    return whole_.part(parts_.offset(first), parts_.range(first, number));
  }
  Count largest() const { return parts_.largest(); }

 private:
  Slice whole_;
  Parts parts_;
};

}  // namespace lockstep
