#include "lanes/host_area.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/shared_stream.h"
#include "base/socket_io.h"
#include "base/unix_socket.h"

namespace tcpx {
namespace {

constexpr const char* kMap = "map shared area";

/// Layout of the shared area. All zeros at first.
struct Layout {
  struct alignas(64) Word {
    std::atomic<uint64_t> value;
  };
  Word alive[2];                     ///< [0] of the first end, [1] of the other
  alignas(64) LeaseWords leases[2];  ///< as `alive`
  struct alignas(64) Joint {
    JointWords words;
  };
  Joint joint[2];       ///< as `alive`
  SharedRing rings[2];  ///< [0] written by the first end, [1] by the other
  BulkRing bulk[2];     ///< as rings
};

Layout& layout(std::byte* base) {
  return *reinterpret_cast<Layout*>(base);
}

// The peer's descriptor may be anything, and memory that shrinks would kill this process at its next access. The seals are checked
// first: only memory has seals, and fstat on something else may block for ever.
Status check(int memory) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = ::fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Status(Code::kProtocol, kMap, "its size is not sealed");
  struct stat facts {};
  if (::fstat(memory, &facts) != 0) return system_error(kMap, errno);
  if (facts.st_size != static_cast<off_t>(sizeof(Layout))) return Status(Code::kProtocol, kMap, "its size is wrong");
  return Status::ok();
}

}  // namespace

Result<UniqueFd> SharedArea::make() {
  UniqueFd memory(::memfd_create("tcpx", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return system_error("make shared area", errno);
  if (::ftruncate(memory.get(), sizeof(Layout)) != 0) return system_error("make shared area", errno);
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return system_error("seal shared area", errno);
  return memory;
}

Result<SharedArea> SharedArea::map(int memory, bool first) {
  TCPX_RETURN_IF_ERROR(check(memory));
  void* const base = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (base == MAP_FAILED) return system_error(kMap, errno);
  SharedArea area;
  area.base_ = static_cast<std::byte*>(base);
  area.bytes_ = sizeof(Layout);
  area.first_ = first;
  if (::madvise(base, sizeof(Layout), MADV_DONTFORK) != 0) return system_error(kMap, errno);
  area.alive(first).store(1);
  return area;
}

// Tells a peer that still reads this end's memory that it may not.
SharedArea::~SharedArea() {
  if (base_ == nullptr) return;
  alive(first_).store(0);
  (void)::munmap(base_, bytes_);
}

std::atomic<uint64_t>& SharedArea::alive(bool of_first) const {
  return layout(base_).alive[of_first ? 0 : 1].value;
}

LeaseWords& SharedArea::leases(bool of_first) const {
  return layout(base_).leases[of_first ? 0 : 1];
}

JointWords& SharedArea::joint(bool of_first) const {
  return layout(base_).joint[of_first ? 0 : 1].words;
}

SharedRing& SharedArea::ring(bool of_first) const {
  return layout(base_).rings[of_first ? 0 : 1];
}

BulkRing& SharedArea::bulk_ring(bool of_first) const {
  return layout(base_).bulk[of_first ? 0 : 1];
}

MemoryBuffer SharedArea::take_bulk_rings() {
  constexpr size_t kRest = offsetof(Layout, bulk), kTaken = sizeof(Layout::bulk);
  static_assert(kRest % alignof(BulkRing) == 0 && kRest + kTaken == sizeof(Layout));
  if (std::exchange(bytes_, kRest) <= kRest) return {};
  std::byte* const rings = base_ + kRest;
  return MemoryBuffer(rings, rings, kTaken, [rings] { (void)::munmap(rings, kTaken); });
}

bool HostPeer::has_ended() const {
  if (same_process || !process) return false;
  std::array<pollfd, 2> ends{pollfd{.fd = process.get(), .events = POLLIN, .revents = 0},
                             pollfd{.fd = socket.get(), .events = 0, .revents = 0}};
  return ::poll(ends.data(), ends.size(), 0) > 0;
}

// A failure is tried again at the next call. The map is the peer's only if the peer has not ended by then: its number may be another
// process's afterwards.
const std::shared_ptr<const Pagemap>& HostPeer::pages() const {
  if (pages_ == nullptr && !same_process) {
    if (auto pages = Pagemap::of(pid); pages.is_ok() && !has_ended()) pages_ = std::move(*pages);
  }
  return pages_;
}

Status HostPeer::pass(const UniqueFd& file) const {
  constexpr std::byte kMark{1};  // a descriptor must travel with at least one byte
  return send_descriptor(files.get(), std::span(&kMark, 1), file.get());
}

Result<ForeignFd> HostPeer::take_passed() const {
  std::byte mark{};
  TCPX_ASSIGN_OR_RETURN(auto received, receive_descriptor(files.get(), std::span(&mark, 1)));
  if (received.bytes == 1) return std::move(received.descriptor);
  return Status(Code::kProtocol, "take descriptor", "the peer names a descriptor that it has not passed");
}

}  // namespace tcpx
