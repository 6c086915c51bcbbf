// The device's memory, at addresses that only the device can access. The host gets a segmentation
// fault there, except while the device works, and not every time in a long run.
#pragma once

#include <cstddef>

namespace emulator {

// Nullptr if there is not enough. Every allocation ends before a protected page, unless there are
// very many, and is filled with 0xff, NaN in all floating-point types. Addresses are not reused, so
// an access to released memory also crashes.
std::byte* allocate_device_memory(std::size_t bytes, int device);
// False if it is not the start of an allocation.
bool release_device_memory(void* memory);

// The device of the allocation that contains all of these bytes; -1 if there is none.
int device_of(const void* memory, std::size_t bytes);
// Whether an allocation contains them.
bool in_device_memory(const void* memory, std::size_t bytes);
// Whether it lies in the device's address range, allocated or not.
bool is_device_address(const void* memory);
std::size_t device_bytes_used();
constexpr std::size_t device_bytes = std::size_t{16} << 30;

// The device works while one of these exists. They nest.
class DeviceWorks {
 public:
  DeviceWorks();
  ~DeviceWorks();
  DeviceWorks(const DeviceWorks&) = delete;
};

}  // namespace emulator
