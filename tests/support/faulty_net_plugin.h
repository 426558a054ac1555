// FaultyNetPlugin: any plugin, with faults on top. Seeded, so that a failing run can be repeated.
//
// Delays are answers every plugin may give ("not yet", "not done", without asking it); they must not affect the data. From call
// number `break_at` on, post, test and consume fail with `break_with`: a real plugin does not recover either. One receiving
// comm may be singled out: it takes no posts, or its posts never complete.
//
// With `vendor_rules` memory is registered by the rules of GPUDirect-TCPX and the driver: GPU memory in whole pages only (24,
// 25), no host memory for a receiving comm, whose flows are steered to the GPU; memory for which `refuses` is true is refused.
//
// With `flip` set, each message is sent with one bit changed, and of `flip_next` the next ones. With `flip_placed` set, one bit of each
// message is changed where it has been put.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "net/net_plugin.h"

namespace tcpx::testing {

struct FaultPolicy {
  uint64_t seed = 1;
  uint32_t delay_percent = 0;            ///< of connect, accept, post and test calls
  uint64_t break_at = 0;                 ///< 0: never. Counts post, test and consume calls
  uint32_t connects_without_memory = 0;  ///< number of connects that throw std::bad_alloc
  uint32_t connects_that_fail = 0;       ///< number of connects, the first ones, that fail with `break_with`
  bool vendor_rules = false;
  std::function<bool(const void* data, size_t bytes, MemoryType type)> refuses = {};  ///< called by several threads
  Status break_with{Code::kPeerGone, "faulty plugin", "scripted", Domain::kNccl, 2};
};

class FaultyNetPlugin final : public NetPlugin {
 public:
  /// `plugin` must outlive this.
  FaultyNetPlugin(NetPlugin& plugin, FaultPolicy policy)
      : plugin_(plugin), policy_(std::move(policy)), rng_(static_cast<std::minstd_rand::result_type>(policy_.seed)) {}

  uint64_t delays() const { return delays_; }
  uint64_t breakable_calls() const { return calls_; }
  /// Registrations refused by the rules or by `refuses`.
  uint64_t refusals() const { return refusals_; }

  std::atomic<bool> flip{false};
  std::atomic<uint32_t> flip_next{0};
  std::atomic<bool> flip_placed{false};

  std::optional<RecvComm> refusing;  ///< "not now" to every post
  std::optional<RecvComm> silent;    ///< nothing posted there completes any more

  const std::string& name() const override { return plugin_.name(); }
  int abi_version() const override { return plugin_.abi_version(); }
  std::optional<MessageCut> message_cut() const override { return plugin_.message_cut(); }
  uint32_t queue_depth() const override { return plugin_.queue_depth(); }
  bool steers_flows() const override { return policy_.vendor_rules || plugin_.steers_flows(); }
  Result<int> device_count() override { return plugin_.device_count(); }
  Result<DeviceProperties> properties(int dev) override { return plugin_.properties(dev); }
  Result<ListenComm> listen(int dev, Handle& handle) override { return plugin_.listen(dev, handle); }
  Result<std::optional<SendComm>> try_connect(int dev, Handle& handle) override {
    if (policy_.connects_without_memory > 0) {
      --policy_.connects_without_memory;
      throw std::bad_alloc();
    }
    if (policy_.connects_that_fail > 0) {
      --policy_.connects_that_fail;
      return policy_.break_with;
    }
    if (delay()) return std::optional<SendComm>();
    return plugin_.try_connect(dev, handle);
  }
  Result<std::optional<RecvComm>> try_accept(ListenComm comm, DeviceHandleStorage& device_handle) override {
    if (delay()) return std::optional<RecvComm>();
    return plugin_.try_accept(comm, device_handle);
  }
  Result<MemoryHandle> register_memory(SendComm comm, void* data, size_t bytes, MemoryType type) override {
    TCPX_RETURN_IF_ERROR(check_registration(data, bytes, type, true));
    return plugin_.register_memory(comm, data, bytes, type);
  }
  Result<MemoryHandle> register_memory(RecvComm comm, void* data, size_t bytes, MemoryType type) override {
    TCPX_RETURN_IF_ERROR(check_registration(data, bytes, type, false));
    return plugin_.register_memory(comm, data, bytes, type);
  }
  Status deregister_memory(SendComm comm, MemoryHandle handle) override { return plugin_.deregister_memory(comm, handle); }
  Status deregister_memory(RecvComm comm, MemoryHandle handle) override { return plugin_.deregister_memory(comm, handle); }
  Result<std::optional<Request>> try_send(SendComm comm, const void* data, size_t bytes, int tag, MemoryHandle handle) override {
    if (broken()) return policy_.break_with;
    if (delay()) return std::optional<Request>();
    if ((!flip && flip_next == 0) || bytes == 0) return plugin_.try_send(comm, data, bytes, tag, handle);
    // A copy, because this end adds up what it sends meanwhile.
    std::vector<std::byte> copy(bytes);
    std::memcpy(copy.data(), data, bytes);
    copy[rng_() % bytes] ^= static_cast<std::byte>(1 << rng_() % 8);
    TCPX_ASSIGN_OR_RETURN(const MemoryHandle own, plugin_.register_memory(comm, copy.data(), bytes, MemoryType::kHost));
    auto request = plugin_.try_send(comm, copy.data(), bytes, tag, own);
    if (request.is_ok() && request->has_value()) {
      flipped_.insert_or_assign(**request, Flipped{comm, own, std::move(copy)});
      if (flip_next > 0) --flip_next;
    } else {
      TCPX_RETURN_IF_ERROR(plugin_.deregister_memory(comm, own));
    }
    return request;
  }
  Result<std::optional<Request>> try_recv(RecvComm comm, void* data, size_t bytes, int tag, MemoryHandle handle) override {
    if (broken()) return policy_.break_with;
    if (delay() || refusing == comm) return std::optional<Request>();
    auto request = plugin_.try_recv(comm, data, bytes, tag, handle);
    if (request.is_ok() && request->has_value())
      received_.insert_or_assign(**request, Received{comm, static_cast<std::byte*>(data)});
    return request;
  }
  Result<Completion> test(Request request) override {
    if (broken()) return policy_.break_with;
    if (delay() || is_silent(request)) return Completion{};
    auto completion = plugin_.test(request);
    if (const auto flipped = flipped_.find(request); flipped != flipped_.end() && (!completion.is_ok() || completion->done)) {
      TCPX_RETURN_IF_ERROR(plugin_.deregister_memory(flipped->second.comm, flipped->second.handle));
      flipped_.erase(flipped);
    }
    if (const auto found = received_.find(request);
        flip_placed && completion.is_ok() && completion->reported_bytes > 0 && found != received_.end()) {
      const auto bytes = static_cast<size_t>(completion->reported_bytes);
      found->second.data[rng_() % bytes] ^= static_cast<std::byte>(1 << rng_() % 8);
    }
    return completion;
  }
  Result<ReceivedMessage> received(Request request) override { return plugin_.received(request); }
  Status consumed(RecvComm comm, Request request) override {
    if (broken()) return policy_.break_with;
    return plugin_.consumed(comm, request);
  }
  Result<BouncePool> bounce_pool(const DeviceHandleStorage& device_handle, const MemoryOps& memory, CopyLane& lane) override {
    return plugin_.bounce_pool(device_handle, memory, lane);
  }
  Status close(SendComm comm) override { return plugin_.close(comm); }
  Status close(RecvComm comm) override { return plugin_.close(comm); }
  Status close(ListenComm comm) override { return plugin_.close(comm); }

 private:
  Status check_registration(const void* data, size_t bytes, MemoryType type, bool sends) {
    const bool pages = reinterpret_cast<uintptr_t>(data) % kPageBytes == 0 && bytes % kPageBytes == 0 && bytes <= INT_MAX;
    const bool kept = !policy_.vendor_rules || (type == MemoryType::kCuda ? pages : sends);
    if (kept && !(policy_.refuses && policy_.refuses(data, bytes, type))) return Status::ok();
    ++refusals_;
    return Status(Code::kPlugin, "regMr", kept ? "refused by the test" : "against the vendor's rules", Domain::kNccl, 3);
  }
  bool delay() {
    if (rng_() % 100 >= policy_.delay_percent) return false;
    ++delays_;
    return true;
  }
  bool is_silent(Request request) const {
    const auto found = received_.find(request);
    return found != received_.end() && silent == found->second.comm;
  }
  bool broken() {
    ++calls_;
    return policy_.break_at != 0 && calls_ >= policy_.break_at;
  }

  NetPlugin& plugin_;
  FaultPolicy policy_;
  std::minstd_rand rng_;
  uint64_t delays_ = 0;
  uint64_t calls_ = 0;
  std::atomic<uint64_t> refusals_ = 0;
  struct Received {
    RecvComm comm;
    std::byte* data = nullptr;
  };
  std::map<Request, Received> received_;
  struct Flipped {
    SendComm comm;
    MemoryHandle handle;
    std::vector<std::byte> sent;
  };
  std::map<Request, Flipped> flipped_;
};

}  // namespace tcpx::testing
