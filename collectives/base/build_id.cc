#include "collectives/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstddef>
#include <cstring>
#include <span>

namespace lockstep {
namespace {

std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

// Returns the id in a segment of notes; each note has a header, a name and a text.
std::string id_in(std::span<const std::byte> notes) {
  while (notes.size() > sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t text = sizeof note + padded(note.n_namesz);
    const std::size_t next = text + padded(note.n_descsz);
    if (next > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID) {
      std::string id;
      for (const std::byte byte : notes.subspan(text, note.n_descsz))
        id += fmt::format("{:02x}", static_cast<unsigned>(byte));
      return id;
    }
    notes = notes.subspan(next);
  }
  return "";
}

// For the first object, which is the program.
int find_id(dl_phdr_info* object, std::size_t, void* found) {
  for (const ElfW(Phdr) & segment : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (segment.p_type != PT_NOTE) continue;
    const auto* begin = reinterpret_cast<const std::byte*>(object->dlpi_addr + segment.p_vaddr);
    const std::string id = id_in({begin, segment.p_memsz});
    if (!id.empty()) *static_cast<std::string*>(found) = id;
  }
  constexpr int look_no_further = 1;
  return look_no_further;
}

}  // namespace

std::string build_id() {
  std::string id = "none";
  dl_iterate_phdr(find_id, &id);
  return id;
}

}  // namespace lockstep
