// The interface between NIXL and its back-ends, as it stands in memory: mirrored from ai-dynamo/nixl, so that the plugin needs
// neither its headers nor its libraries.
//
// Sources: src/api/cpp/backend/backend_engine.h, backend_aux.h, backend_plugin.h and src/api/cpp/nixl_types.h, nixl_descriptors.h
// of the releases 0.6.1 to 1.4.0, and the virtual tables in the Python wheels 0.7.1 to 1.5.1 (readelf on libplugin_UCX.so,
// which tests/nixl repeats on every wheel that is installed). Sizes and offsets are equal in all of them; the virtual table is
// not, and NIXL does not say which it calls: see EngineA, EngineB, EngineC below and family.h.
//
// Strings, vectors and maps cross by value, in the layout of libstdc++'s C++11 ABI on x86-64 and AArch64.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tcpx::nixl::abi {

using Parameters = std::unordered_map<std::string, std::string>;

enum class MemSegment : int32_t { kDram = 0, kVram = 1, kBlock = 2, kObject = 3, kFile = 4 };
enum class XferOp : int32_t { kRead = 0, kWrite = 1 };
/// Lock of an agent around its calls; kReadWrite lets prepare, post, check, release and notifications run side by side.
enum class SyncMode : int32_t { kNone = 0, kStrict = 1, kReadWrite = 2 };
enum class CostMethod : int32_t { kAnalytical = 0 };
enum class NixlStatus : int32_t {
  kInProgress = 1,
  kSuccess = 0,
  kNotPosted = -1,
  kInvalidParam = -2,
  kBackend = -3,
  kNotFound = -4,
  kMismatch = -5,
  kNotAllowed = -6,
  kRepostActive = -7,
  kUnknown = -8,
  kNotSupported = -9,
  kRemoteDisconnect = -10,
  kCanceled = -11,
  kNoTelemetry = -12,
};

struct InitParams {
  std::string local_agent;
  std::string type;  ///< name of the back-end: TCPX
  const Parameters* parameters;
  bool wants_progress_thread;
  uint64_t progress_delay_us;
  SyncMode sync_mode;
  bool wants_telemetry;
};
static_assert(sizeof(InitParams) == 96 && offsetof(InitParams, type) == 32 && offsetof(InitParams, parameters) == 64 &&
              offsetof(InitParams, progress_delay_us) == 80 && offsetof(InitParams, sync_mode) == 88 &&
              offsetof(InitParams, wants_telemetry) == 92);

/// A range of memory of one kind. `device`: the GPU's index, for kVram.
struct BasicDesc {
  uint64_t address;
  uint64_t bytes;
  uint64_t device;
};
/// The same, with the answer of public_data: all that the other side needs to know of it.
struct BlobDesc : BasicDesc {
  std::string blob;
};
/// Handle of a region, from register_memory, load_local or load_remote: an object of ours, with a virtual destructor first.
class Metadata {
 public:
  explicit Metadata(bool is_private) : is_private_(is_private) {}
  virtual ~Metadata() = default;

 protected:
  bool is_private_;
};
struct MetaDesc : BasicDesc {
  Metadata* metadata;  ///< of the region that the range lies in
};
/// A posted or prepared request: an object of ours, with a virtual destructor first.
class BackendReq {
 public:
  virtual ~BackendReq() = default;
};
template <class Desc>
struct DescList {
  const void* virtual_table;
  MemSegment memory;
  std::vector<Desc> descs;
};
static_assert(sizeof(BasicDesc) == 24 && sizeof(BlobDesc) == 56 && sizeof(MetaDesc) == 32 && sizeof(Metadata) == 16 &&
              sizeof(BackendReq) == 8 && sizeof(DescList<MetaDesc>) == 40 && offsetof(DescList<MetaDesc>, memory) == 8 &&
              offsetof(DescList<MetaDesc>, descs) == 16);

struct OptionalArgs {
  std::string notification;
  bool has_notification;
  std::string custom;
};
static_assert(sizeof(OptionalArgs) == 72 && offsetof(OptionalArgs, has_notification) == 32 &&
              offsetof(OptionalArgs, custom) == 40);

/// An event of a back-end, as NIXL 0.6.1 to 0.10.1 export them beside the agent's own (src/core/telemetry/telemetry_event.h).
/// NIXL frees the vector of them. Since 1.0.0 nobody takes them, though the vector is there.
struct TelemetryEvent {
  uint64_t time_us;  ///< since 1970
  int32_t category;
  char name[32];  ///< ends with a zero
  uint64_t value;
};
static_assert(sizeof(TelemetryEvent) == 56 && offsetof(TelemetryEvent, name) == 12 && offsetof(TelemetryEvent, value) == 48);
inline constexpr int32_t kBackendCategory = 3;
inline constexpr size_t kMaxTelemetryEvents = 1000;  // as many as NIXL's own back-ends keep

/// Agent that sent it, message.
using Notifications = std::vector<std::pair<std::string, std::string>>;

/// Fields that NIXL reads in an engine with code of its own, and the part of the virtual table that all families share. A comment
/// gives the slot. Methods are called under the lock that SyncMode says; none may throw.
class Engine {
 public:
  explicit Engine(const InitParams& params)
      : type_(params.type),
        parameters_(params.parameters != nullptr ? *params.parameters : Parameters()),
        local_agent_(params.local_agent),
        wants_telemetry_(params.wants_telemetry) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  virtual ~Engine() = default;                                                                              // 0, 1
  virtual bool supports_remote() const = 0;                                                                 // 2
  virtual bool supports_local() const = 0;                                                                  // 3
  virtual bool supports_notifications() const = 0;                                                          // 4
  virtual std::vector<MemSegment> memories() const = 0;                                                     // 5
  virtual NixlStatus register_memory(const BlobDesc& range, const MemSegment& memory, Metadata*& out) = 0;  // 6
  virtual NixlStatus deregister_memory(Metadata* metadata) = 0;                                             // 7
  virtual NixlStatus connect(const std::string& agent) = 0;                                                 // 8
  virtual NixlStatus disconnect(const std::string& agent) = 0;                                              // 9
  virtual NixlStatus unload(Metadata* metadata) = 0;                                                        // 10
  virtual NixlStatus prepare(const XferOp& operation, const DescList<MetaDesc>& local, const DescList<MetaDesc>& remote,
                             const std::string& agent, BackendReq*& request, const OptionalArgs* args) const = 0;  // 11
  virtual NixlStatus post(const XferOp& operation, const DescList<MetaDesc>& local, const DescList<MetaDesc>& remote,
                          const std::string& agent, BackendReq*& request, const OptionalArgs* args) const = 0;  // 12
  virtual NixlStatus check(BackendReq* request) const = 0;                                                      // 13
  virtual NixlStatus release(BackendReq* request) const = 0;                                                    // 14

 protected:
  /// Lets NIXL export an event; dropped when it has left too many lying there. @param name at most 31 bytes, the rest is cut off
  void add_telemetry(const char* name, uint64_t value) {
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
    TelemetryEvent event{.time_us = static_cast<uint64_t>(now.count()), .category = kBackendCategory, .name = {}, .value = value};
    static_cast<void>(std::snprintf(event.name, sizeof event.name, "%s", name));
    const std::lock_guard lock(telemetry_mutex_);
    if (telemetry_events_.size() < kMaxTelemetryEvents) telemetry_events_.push_back(event);
  }

  std::string type_;
  Parameters parameters_;
  // NIXL takes the vector away under the mutex, in the families whose engines say so; left empty in the others.
  std::vector<TelemetryEvent> telemetry_events_;
  std::mutex telemetry_mutex_;
  bool failed_ = false;  ///< the constructor could not do its work: NIXL refuses the engine
  const std::string local_agent_;
  const bool wants_telemetry_;
};
static_assert(sizeof(Engine) == 208 && sizeof(std::mutex) == 40);

/// The methods behind the GPU's own, from public_data on: equal in all families, in other slots.
#define TCPX_NIXL_ENGINE_TAIL                                                                                                    \
  virtual NixlStatus public_data(const Metadata* metadata, std::string& out) const = 0;                                          \
  virtual NixlStatus connection_info(std::string& out) const = 0;                                                                \
  virtual NixlStatus load_connection_info(const std::string& agent, const std::string& info) = 0;                                \
  virtual NixlStatus load_remote(const BlobDesc& range, const MemSegment& memory, const std::string& agent, Metadata*& out) = 0; \
  virtual NixlStatus load_local(Metadata* in, Metadata*& out) = 0;                                                               \
  virtual NixlStatus take_notifications(Notifications& out) = 0;                                                                 \
  virtual NixlStatus notify(const std::string& agent, const std::string& message) const = 0;                                     \
  virtual NixlStatus query() const = 0;                                                                                          \
  virtual NixlStatus estimate(const XferOp& operation, const DescList<MetaDesc>& local, const DescList<MetaDesc>& remote,        \
                              const std::string& agent, BackendReq* const& request, std::chrono::microseconds& duration,         \
                              std::chrono::microseconds& error, CostMethod& method, const void* args) const = 0

/// Optional methods that this back-end has not: transfers started by the GPU, views of memory for it. Their arguments are not
/// looked at, so they are not mirrored either.
#define TCPX_NIXL_UNSUPPORTED(name)   \
  virtual NixlStatus name() const {   \
    return NixlStatus::kNotSupported; \
  }

/// NIXL 0.6.1 to 0.9.0.
class EngineA : public Engine {
 public:
  static constexpr bool kExportsTelemetry = true;  ///< NIXL takes the events of its back-ends
  using Engine::Engine;
  TCPX_NIXL_UNSUPPORTED(create_gpu_request)   // 15
  TCPX_NIXL_UNSUPPORTED(release_gpu_request)  // 16
  TCPX_NIXL_UNSUPPORTED(gpu_signal_size)      // 17
  TCPX_NIXL_UNSUPPORTED(prepare_gpu_signal)   // 18
  TCPX_NIXL_ENGINE_TAIL;                      // 19 ... 27
};
/// NIXL 0.10.0 and 0.10.1.
class EngineB : public Engine {
 public:
  static constexpr bool kExportsTelemetry = true;
  using Engine::Engine;
  TCPX_NIXL_UNSUPPORTED(create_gpu_request)          // 15
  TCPX_NIXL_UNSUPPORTED(release_gpu_request)         // 16
  TCPX_NIXL_UNSUPPORTED(gpu_signal_size)             // 17
  TCPX_NIXL_UNSUPPORTED(prepare_gpu_signal)          // 18
  TCPX_NIXL_UNSUPPORTED(prepare_remote_memory_view)  // 19
  TCPX_NIXL_UNSUPPORTED(prepare_local_memory_view)   // 20
  TCPX_NIXL_UNSUPPORTED(release_memory_view)         // 21
  TCPX_NIXL_ENGINE_TAIL;                             // 22 ... 30
};
/// NIXL 1.0.0 and later.
class EngineC : public Engine {
 public:
  static constexpr bool kExportsTelemetry = false;
  using Engine::Engine;
  TCPX_NIXL_UNSUPPORTED(prepare_remote_memory_view)  // 15
  TCPX_NIXL_UNSUPPORTED(prepare_local_memory_view)   // 16
  TCPX_NIXL_UNSUPPORTED(release_memory_view)         // 17
  TCPX_NIXL_ENGINE_TAIL;                             // 18 ... 26
};

#undef TCPX_NIXL_ENGINE_TAIL
#undef TCPX_NIXL_UNSUPPORTED

inline constexpr int kApiVersion = 1;  // of every release, though the virtual table changed twice

/// Answer of nixl_plugin_init. NIXL never unloads the library that it lies in.
struct Plugin {
  int api_version;
  Engine* (*create_engine)(const InitParams* params);  ///< nullptr: failed
  void (*destroy_engine)(Engine* engine);
  const char* (*name)();
  const char* (*version)();
  Parameters (*options)();  ///< with the values that create_engine would go by
  std::vector<MemSegment> (*memories)();
};
static_assert(sizeof(Plugin) == 56 && offsetof(Plugin, create_engine) == 8 && offsetof(Plugin, memories) == 48);

}  // namespace tcpx::nixl::abi
