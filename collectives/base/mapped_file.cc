#include "collectives/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {

MappedFile::MappedFile(const std::string& path, std::int64_t most_bytes) {
  const std::int64_t bytes = file_bytes(path, most_bytes);
  if (bytes == 0) return;  // nothing can be mapped
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const begin = descriptor < 0 ? MAP_FAILED
                                     : mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ,
                                            MAP_PRIVATE, descriptor, 0);
  const int reason = errno;
  if (descriptor >= 0) close(descriptor);
  require(begin != MAP_FAILED, fmt::format("cannot read {}: {}", path, std::strerror(reason)),
          "check the file's permissions");
  bytes_ = {static_cast<const char*>(begin), static_cast<std::size_t>(bytes)};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep
