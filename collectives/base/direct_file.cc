#include "collectives/base/direct_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

Slice bytes_of(Slice data) { return {data.data, data.bytes(), DType::u8, data.device}; }

const char* hint_for(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      return "free space, or name a file on another disk";
    case EFBIG:
      return "raise the limit on a file's size (ulimit -f)";
    case EEXIST:
      return "name a file that does not exist, or remove this one";
    case EIO:
      return "the disk fails: name a file on another one";
    default:
      return "name a file in a folder that exists and that you may write to";
  }
}

}  // namespace

DirectFile::DirectFile(const std::string& path, Count bytes, Ledger* ledger, MemoryUse use)
    : path_(path), memory_(host_device(), ledger, use, memory_bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  buffer_ = memory_.data() + (block_bytes - address % block_bytes) % block_bytes;
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  descriptor_ = open(path.c_str(), flags | O_DIRECT, 0600);
  if (descriptor_ < 0 && errno == EINVAL) {
    is_direct_ = false;
    unlink(path.c_str());  // some file systems create it before they refuse the flag
    descriptor_ = open(path.c_str(), flags, 0600);
  }
  check(descriptor_ >= 0, "create");
  unlink(path.c_str());
  const Count whole = moved_bytes(bytes);
  if (whole == 0 || fallocate(descriptor_, 0, 0, whole) == 0) return;
  const bool cannot_reserve = errno == EOPNOTSUPP || errno == ENOSYS;
  const bool has_size = cannot_reserve && ftruncate(descriptor_, whole) == 0;
  if (has_size) return;
  const int reason = errno;
  close(std::exchange(descriptor_, -1));  // no destructor runs if the constructor throws
  errno = reason;
  check(false, "reserve space for");
}

DirectFile::~DirectFile() { close(descriptor_); }

void DirectFile::read(Count offset, Slice into) {
  move(offset, into, [&](Count at, Slice part) {
    const Count bytes = moved_bytes(part.count);
    repeat(at, bytes, "read", [&](Count done) {
      return pread(descriptor_, buffer_ + done, static_cast<std::size_t>(bytes - done), at + done);
    });
    part.device->copy(part, {buffer_, part.count, DType::u8, &host_device()});
  });
}

void DirectFile::write(Count offset, Slice from) {
  move(offset, from, [&](Count at, Slice part) {
    const Count bytes = moved_bytes(part.count);
    part.device->copy({buffer_, part.count, DType::u8, &host_device()}, part);
    std::fill(buffer_ + part.count, buffer_ + bytes, std::byte{0});
    repeat(at, bytes, "write", [&](Count done) {
      return pwrite(descriptor_, buffer_ + done, static_cast<std::size_t>(bytes - done), at + done);
    });
  });
}

// Calls transfer(offset, part) for the parts of the data that fit into the buffer.
template <typename Transfer>
void DirectFile::move(Count offset, Slice data, Transfer transfer) {
  const Slice bytes = bytes_of(data);
  for (Count begin = 0; begin < bytes.count; begin += buffer_bytes)
    transfer(offset + begin, bytes.part(begin, std::min(buffer_bytes, bytes.count - begin)));
}

// Repeats a call that moves some of the bytes until all are moved.
template <typename Call>
void DirectFile::repeat(Count offset, Count bytes, const char* what, Call call) {
  for (Count done = 0; done < bytes;) {
    const ssize_t moved = call(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EINVAL && is_direct_) {  // this file system needs larger blocks
      is_direct_ = false;
      fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) & ~O_DIRECT);
      continue;
    }
    require(
        moved != 0, [&] { return fmt::format("cannot {} {}: it has become shorter", what, path_); },
        "let no other program change it");
    check(moved > 0, what);
    done += moved;
  }
  if (!is_direct_) drop_pages(offset, bytes);
}

// Pages must be on disk before they can be dropped.
void DirectFile::drop_pages(Count offset, Count bytes) const {
  constexpr unsigned now =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const bool failed = sync_file_range(descriptor_, offset, bytes, now) != 0;
  check(!failed || (errno != EIO && errno != ENOSPC && errno != EDQUOT), "write");
  posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_DONTNEED);
}

void DirectFile::check(bool success, const char* what) const {
  if (success) return;
  const int reason = errno;
  require(false, fmt::format("cannot {} {}: {}", what, path_, std::strerror(reason)),
          hint_for(reason));
}

}  // namespace lockstep
