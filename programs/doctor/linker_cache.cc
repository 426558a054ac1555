#include "programs/doctor/linker_cache.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace tcpx::doctor {
namespace {

// Mirrored from glibc: sysdeps/generic/dl-cache.h, struct cache_file_new and file_entry_new, 2.36. Older systems put a part of
// another layout in front; offsets count from this one.
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
struct CacheHeader {
  char magic_and_version[20];
  uint32_t library_count;
  uint32_t string_bytes;
  uint32_t flags;
  uint32_t extension_offset;
  uint32_t unused[3];
};
static_assert(sizeof(CacheHeader) == 48 && offsetof(CacheHeader, library_count) == 20);
struct CacheEntry {
  int32_t flags;
  uint32_t name_offset;
  uint32_t path_offset;
  uint32_t os_version;
  uint64_t hardware;
};
static_assert(sizeof(CacheEntry) == 24 && offsetof(CacheEntry, path_offset) == 8);

template <class T>
std::optional<T> load(std::string_view bytes, size_t off) {
  if (off > bytes.size() || sizeof(T) > bytes.size() - off) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + off, sizeof value);
  return value;
}

std::string_view string_at(std::string_view bytes, size_t off) {
  if (off >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(off);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> linker_cache_entries(std::string_view bytes) {
  std::vector<std::pair<std::string, std::string>> found;
  const size_t begin = bytes.find(kMagic);
  if (begin == std::string_view::npos) return found;
  bytes.remove_prefix(begin);
  const auto header = load<CacheHeader>(bytes, 0);
  if (!header) return found;
  for (uint32_t i = 0; i < header->library_count; ++i) {
    const auto entry = load<CacheEntry>(bytes, sizeof(CacheHeader) + size_t{i} * sizeof(CacheEntry));
    if (!entry) break;
    found.emplace_back(string_at(bytes, entry->name_offset), string_at(bytes, entry->path_offset));
  }
  return found;
}

}  // namespace tcpx::doctor
