#include "net/soft/device_network.h"

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "net/devmem/broker_client.h"

namespace tcpx::soft {
namespace {

using devmem::Netdev;

constexpr uint64_t kLeastBytes = 2 << 20;  // that CUDA allocates

/// What a process without CAP_NET_ADMIN meets: no right, or no place of its own for the records of steering.
bool lacks_privilege(const Status& status) {
  const int error = status.domain() == Domain::kErrno ? status.native() : 0;
  return error == EPERM || error == EACCES || error == EROFS || error == ENOENT;
}

Result<std::shared_ptr<devmem::QueueBinding>> bind_somehow(const std::string& broker, const std::string& interface, int dmabuf,
                                                           uint64_t bytes) {
  auto here = devmem::bind_here(interface, dmabuf);
  if (here.is_ok() || !lacks_privilege(here.status())) return here;
  auto there = devmem::bind_by_broker(broker, interface, dmabuf, bytes);
  if (there.is_ok()) return there;
  const Status& own = here.status();
  return Status(own.code(), own.operation(), concat(own.detail(), "; ", there.status().to_string()), own.domain(), own.native());
}

class NicSources final : public DeviceSources {
 public:
  NicSources(MemoryOps& memory, int gpu, uint32_t interface) : memory_(memory), gpu_(gpu), interface_(interface) {}

  Result<std::shared_ptr<const BoundSource>> bind(const Pages& pages) override {
    const MutexLock lock(mutex_);
    auto& known = bound_[{pages.begin, pages.bytes}];
    if (auto bound = known.lock()) return bound;
    auto made = make(pages);
    if (made.is_ok()) known = *made;
    if (!made.is_ok()) tell(made.status());
    std::erase_if(bound_, [](const auto& entry) { return entry.second.expired(); });
    return made;
  }
  Result<BoundPage> page(std::span<const std::byte, kPageBytes> content) override {
    const MutexLock lock(mutex_);
    if (proofs_ == nullptr) {
      auto made = make_proofs();
      if (!made.is_ok()) tell(made.status());
      TCPX_ASSIGN_OR_RETURN(proofs_, std::move(made));
    }
    return ProofPages::take(proofs_, content);
  }
  devmem::SocketCalls& calls() override { return devmem::SocketCalls::real(); }

 private:
  /// Pages for the proofs of connections.
  struct ProofPages {
    MemoryBuffer memory;
    std::shared_ptr<const BoundSource> source;
    std::unique_ptr<CopyLane> copies;
    Mutex mutex;
    std::vector<uint64_t> free TCPX_GUARDED_BY(mutex);  // offsets

    static Result<BoundPage> take(const std::shared_ptr<ProofPages>& pages, std::span<const std::byte, kPageBytes> content) {
      uint64_t off;
      {
        const MutexLock lock(pages->mutex);
        if (pages->free.empty()) return Status(Code::kExhausted, "take a proof page", "all are in use");
        off = pages->free.back();
        pages->free.pop_back();
      }
      std::shared_ptr<const void> keeps(static_cast<const void*>(pages.get()), [pages, off](const void*) {
        const MutexLock lock(pages->mutex);
        pages->free.push_back(off);
      });
      TCPX_RETURN_IF_ERROR(pages->copies->copy(pages->memory.device() + off, content.data(), content.size()));
      return BoundPage{pages->source->dmabuf, off, std::move(keeps)};
    }
  };

  Result<std::shared_ptr<ProofPages>> make_proofs() {
    auto made = std::make_shared<ProofPages>();
    TCPX_ASSIGN_OR_RETURN(made->memory, memory_.allocate_device(gpu_, kLeastBytes));
    TCPX_ASSIGN_OR_RETURN(made->source, make({made->memory.device(), kLeastBytes}));
    TCPX_ASSIGN_OR_RETURN(made->copies, memory_.make_copy_lane(gpu_));
    const MutexLock lock(made->mutex);
    for (uint64_t off = 0; off < kLeastBytes; off += kPageBytes) made->free.push_back(off);
    return made;
  }
  void tell(const Status& why) TCPX_REQUIRES(mutex_) {
    if (!std::exchange(told_, true)) log(LogLevel::kNotice, "tcpx-soft: ", why.to_string(), ": what is sent is copied");
  }
  Result<std::shared_ptr<const BoundSource>> make(const Pages& pages) {
    TCPX_ASSIGN_OR_RETURN(const UniqueFd dmabuf, memory_.export_dmabuf(gpu_, pages));
    TCPX_ASSIGN_OR_RETURN(Netdev netdev, Netdev::open());
    TCPX_ASSIGN_OR_RETURN(const uint32_t id, netdev.bind_send(interface_, dmabuf.get()));
    return std::make_shared<const BoundSource>(
        BoundSource{{id, pages.bytes}, pages.begin, std::make_shared<const Netdev>(std::move(netdev))});
  }

  MemoryOps& memory_;
  const int gpu_;
  const uint32_t interface_;
  Mutex mutex_;
  std::map<std::pair<const std::byte*, size_t>, std::weak_ptr<const BoundSource>> bound_ TCPX_GUARDED_BY(mutex_);
  std::shared_ptr<ProofPages> proofs_ TCPX_GUARDED_BY(mutex_);
  bool told_ TCPX_GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::shared_ptr<const DevicePool>> DeviceNetwork::pool(int gpu, const std::string& interface) {
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, devmem::interface_index(interface));
  const MutexLock lock(mutex_);
  const Place place{gpu, index};
  const auto known = pools_.find(place);
  const auto pool = known != pools_.end() ? known->second.lock() : nullptr;
  if (pool != nullptr && pool->binding->is_there()) return pool;
  if (const auto reason = why_not_.find(place); reason != why_not_.end()) return reason->second;
  // Only the bind tells whether a machine can. It is tried with little memory first.
  auto made = make_pool(gpu, interface, kLeastBytes, kPageBytes);
  if (made.is_ok()) {
    made = Status(Code::kInternal, "", "");  // its binding ends
    made = make_pool(gpu, interface, std::min(kNicShare * message_bytes_, kMaxPoolBytes - message_bytes_) / kPageBytes * kPageBytes,
                     message_bytes_);
  }
  if (made.is_ok())
    pools_[place] = *made;
  else if (known == pools_.end())
    why_not_.emplace(place, made.status());
  return made;
}

Result<std::shared_ptr<const DevicePool>> DeviceNetwork::make_pool(int gpu, const std::string& interface, uint64_t front,
                                                                   uint64_t behind) {
  // Most machines have none, and need no memory to know that.
  TCPX_ASSIGN_OR_RETURN(Netdev netdev, Netdev::open());
  TCPX_RETURN_IF_ERROR(devmem::find_spare_queue(netdev, interface).status());
  TCPX_ASSIGN_OR_RETURN(auto memory, memory_.allocate_device(gpu, front + behind));
  TCPX_ASSIGN_OR_RETURN(const UniqueFd dmabuf, memory_.export_dmabuf(gpu, {memory.device(), front}));
  TCPX_ASSIGN_OR_RETURN(auto binding, bind_somehow(broker_, interface, dmabuf.get(), front));
  TCPX_ASSIGN_OR_RETURN(auto copies, memory_.make_copy_lane(gpu));
  log(LogLevel::kDebug, "tcpx-soft: ", front, " bytes of device memory receive by queue ", binding->queue(), " of ", interface);
  return std::make_shared<const DevicePool>(DevicePool{
      .gpu = gpu,
      .pages = PagePool::behind(std::move(memory), front),
      .bound = {binding->dmabuf_id(), front},
      .calls = devmem::SocketCalls::real(),
      .copies = std::move(copies),
      .binding = std::move(binding),
  });
}

Result<std::shared_ptr<DeviceSources>> DeviceNetwork::sources(int gpu, const std::string& interface) {
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, devmem::interface_index(interface));
  const MutexLock lock(mutex_);
  auto& known = sources_[{gpu, index}];
  if (auto sources = known.lock()) return sources;
  std::shared_ptr<DeviceSources> made = std::make_shared<NicSources>(memory_, gpu, index);
  known = made;
  return made;
}

Result<std::shared_ptr<const DevicePool>> lead_to(std::shared_ptr<const DevicePool> pool, const std::vector<int>& listeners) {
  struct Led {
    std::shared_ptr<const DevicePool> pool;
    std::vector<std::shared_ptr<const void>> rules;
  };
  auto led = std::make_shared<Led>(Led{std::move(pool), {}});
  for (const int listener : listeners) {
    TCPX_ASSIGN_OR_RETURN(auto rule, led->pool->binding->lead(listener));
    led->rules.push_back(std::move(rule));
  }
  return std::shared_ptr<const DevicePool>(led, led->pool.get());
}

}  // namespace tcpx::soft
