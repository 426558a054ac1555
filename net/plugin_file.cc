#include "net/plugin_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"

namespace tcpx {
namespace {

bool read_at(int file, std::span<std::byte> room, uint64_t offset) {
  return ::pread(file, room.data(), room.size(), static_cast<off_t>(offset)) == static_cast<ssize_t>(room.size());
}

bool lies_within(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

// Of a file of `size` bytes. The headers count in 16 bits, so the list is bounded.
bool is_whole(int file, const Elf64_Ehdr& header, uint64_t size) {
  if (!lies_within(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize, size)) return false;
  if (!lies_within(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize, size)) return false;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return true;  // the dynamic linker refuses it
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  if (!read_at(file, std::as_writable_bytes(std::span(parts)), header.e_phoff)) return false;
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_NULL && !lies_within(part.p_offset, part.p_filesz, size)) return false;
  }
  return true;
}

}  // namespace

Status check_plugin_file(const std::string& path) {
  if (path.find('/') == std::string::npos) return Status::ok();
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return Status::ok();
  Elf64_Ehdr header{};
  if (!read_at(file.get(), std::as_writable_bytes(std::span(&header, 1)), 0)) return Status::ok();
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return Status::ok();
  if (is_whole(file.get(), header, static_cast<uint64_t>(facts.st_size))) return Status::ok();
  return Status(Code::kUnsupported, "open net plugin",
                concat(path, " was cut off: it has ", facts.st_size, " bytes, fewer than its headers speak of. Copy it again"));
}

}  // namespace tcpx
