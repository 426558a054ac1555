#include "lanes/pull/mappings.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

// CUDA opens no handle in the process that it is of: there the address itself is good, if this GPU may use it.
// @param here the share is of this process
Result<MemoryBuffer> map_for(int gpu, const MemoryShare& share, int file, bool here, MemoryOps& memory) {
  if (!here || share.kind != ShareKind::kIpc) return memory.map_shared(gpu, share, file);
  const auto at = reinterpret_cast<void*>(static_cast<uintptr_t>(share.base));
  if (memory.reaches(gpu, at)) return MemoryBuffer(nullptr, at, share.bytes, nullptr);
  return Status(Code::kUnsupported, "use GPU memory of this process", concat("GPU ", gpu, " does not reach that GPU"));
}

}  // namespace

bool Mapping::contains(const WireSource& source) const {
  return source.address >= memory.base && source.address - memory.base <= memory.bytes &&
         source.bytes <= memory.bytes - (source.address - memory.base);
}

Mapping::~Mapping() {
  try {
    if (mapped != nullptr && !mapped->is_done() && !unmapper.cancel(*mapped)) {
      unmapper.let_go({}, [unwanted = mapped, told = gone] {
        unwanted->done.wait(false, std::memory_order_acquire);
        unwanted->buffer = MemoryBuffer();
        told->store(true);
      });
      return;
    }
    if (mapped != nullptr && is_mapped()) {
      std::vector<MemoryBuffer> buffers;
      buffers.push_back(std::move(*mapped->buffer));
      unmapper.let_go(std::move(buffers), [told = gone] { told->store(true); });
      return;
    }
  } catch (const std::bad_alloc&) {  // the buffer has then been unmapped on this thread
  }
  gone->store(true);
}

Status Mappings::on_share(const LaneFrame& frame) {
  MemoryShare memory;
  if (frame.words.size() != sizeof memory)
    return unexpected(frame.kType, frame.number, concat("a share of ", frame.words.size(), " bytes"));
  std::memcpy(&memory, frame.words.data(), sizeof memory);
  // The sender counts a share until it is told that it is unmapped.
  const uint64_t share = frame.number;
  const size_t count = mappings_.size() + unshared_.size();
  if (share == kHostMemory || count >= kMaxShares || mappings_.contains(share))
    return Status(Code::kProtocol, "map shared memory", concat("share ", share, " of ", count));
  auto file = std::make_shared<ForeignFd>();
  if (memory.kind == ShareKind::kFile) {
    // Empty: too many descriptors are open here; map_shared fails then.
    TCPX_ASSIGN_OR_RETURN(*file, peer_.take_passed());
  }
  auto mapping = std::make_shared<Mapping>(parts_.unmapper, share, memory);
  mapping->mapped = parts_.unmapper.make([memory, file, &ops = parts_.memory, gpu = parts_.gpu, here = peer_.same_process] {
    auto buffer = map_for(gpu, memory, file->get(), here, ops);
    file->reset();
    if (!buffer.is_ok())
      log(LogLevel::kInfo, buffer.status().to_string(), ": GPU memory of a peer on the same host is not read directly");
    return buffer;
  });
  mappings_.emplace(share, std::move(mapping));
  return Status::ok();
}

Status Mappings::on_unshare(uint64_t share) {
  const auto mapping = mappings_.find(share);
  if (mapping == mappings_.end()) return Status(Code::kProtocol, "unmap shared memory", concat("no share ", share));
  unshared_.push_back({share, mapping->second->gone});
  mappings_.erase(mapping);
  return Status::ok();
}

bool Mappings::tell_unshared() {
  bool advanced = false;
  for (auto one = unshared_.begin(); one != unshared_.end();) {
    if (!one->gone->load()) {
      ++one;
      continue;
    }
    stream_.send(talk(PullTalk::kUnshared, one->share));
    one = unshared_.erase(one);
    advanced = true;
  }
  return advanced;
}

bool Mappings::any_gone() const {
  return std::any_of(unshared_.begin(), unshared_.end(), [](const Unshared& one) { return one.gone->load(); });
}

std::shared_ptr<Mapping> Mappings::find(uint64_t share) const {
  const auto mapping = mappings_.find(share);
  return mapping == mappings_.end() ? nullptr : mapping->second;
}

void Mappings::close() {
  mappings_.clear();
  unshared_.clear();
}

}  // namespace tcpx
