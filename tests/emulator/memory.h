// The device's memory: addresses that only the device can read and write. The host gets a
// segmentation fault there; but not while the device works, and in a long run not every time.
#pragma once

#include <cstddef>

namespace emulator {

// Nullptr where there is not enough. Every allocation ends before a page that nobody can touch,
// unless there are very many of them, and holds 0xff bytes, NaN in all floating types, until
// something is written. Addresses are not used again, so that memory that was released crashes,
// too.
std::byte* allocate_device_memory(std::size_t bytes, int device);
// False if it is no allocation's begin.
bool release_device_memory(void* memory);

// Whose allocation all of these bytes are in; -1 if they are in none.
int device_of(const void* memory, std::size_t bytes);
// Whether they are in one.
bool in_device_memory(const void* memory, std::size_t bytes);
// Whether it is among the addresses of the device, allocated or not.
bool is_device_address(const void* memory);
std::size_t device_bytes_used();
constexpr std::size_t device_bytes = std::size_t{16} << 30;

// While one of these lives, the device works. They nest.
class DeviceWorks {
 public:
  DeviceWorks();
  ~DeviceWorks();
  DeviceWorks(const DeviceWorks&) = delete;
};

}  // namespace emulator
