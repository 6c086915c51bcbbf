// What algorithms cut and pass: an untyped view of memory on some device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/base/dtype.h"

namespace lockstep {

class Device;
Device& host_device();

// `count` elements of `dtype` at `data`, which belong to `device`. A view: it owns nothing.
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

// `parts` nearly equal parts of a slice: the first count % parts of them hold one element more.
// chunk[i] takes any i and wraps around, so ring arithmetic needs no modulo.
class Chunks {
 public:
  Chunks(Slice whole, int parts) : whole_(whole), parts_(parts) {}

  Slice operator[](int index) const {
    const Count i = ((index % parts_) + parts_) % parts_;
    const Count size = whole_.count / parts_, extra = whole_.count % parts_;
    return whole_.part(i * size + std::min(i, extra), size + (i < extra ? 1 : 0));
  }
  // Elements of the largest part.
  Count largest() const { return (whole_.count + parts_ - 1) / parts_; }

 private:
  Slice whole_;
  int parts_;
};

}  // namespace lockstep
