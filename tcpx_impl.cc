// The C interface over the plugin in use: check, call, translate, catch everything.
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "net/plugin_loader.h"
#include "tcpx_interface.h"

namespace {

using tcpx::Code;
using tcpx::Result;
using tcpx::Status;

thread_local std::string last_error;

/// What C callers share: one plugin per process, chosen by the first successful load.
struct PluginInUse {
  std::mutex loading;  // held over a whole load, so that two at once cannot start two plugins
  std::mutex mutex;
  std::shared_ptr<tcpx::NetPlugin> plugin;
  tcpx::PluginSource source;
  std::set<std::string> strings;  // what tcpx_get_properties has handed out
};

PluginInUse& in_use() {
  static PluginInUse& instance = *new PluginInUse;  // never destroyed: threads may call while the process ends
  return instance;
}

/// Our code even where the plugin has one.
int fail_negative(const Status& status) {
  last_error = status.to_string();
  return -static_cast<int>(status.code());
}

int fail(const Status& status) {
  const int ours = fail_negative(status);
  const bool plugin_said = status.domain() == tcpx::Domain::kNccl && status.native() > 0;
  return plugin_said ? status.native() : ours;
}

int translate(const Status& status) {
  return status.is_ok() ? TCPX_OK : fail(status);
}

/// Runs one call of the interface; nothing is thrown out of it.
template <class Body>
int guarded(const char* operation, const Body& body) noexcept {
  try {
    try {
      return body();
    } catch (const std::exception& error) {
      return fail(Status(Code::kInternal, operation, error.what()));
    } catch (...) {
      return fail(Status(Code::kInternal, operation, "unknown exception"));
    }
  } catch (...) {  // no memory for the text either
    last_error.clear();
    return TCPX_E_INTERNAL;
  }
}

int invalid(const char* operation, const char* detail) {
  return fail(Status(Code::kInvalidArgument, operation, detail));
}

Result<tcpx::NetPlugin*> plugin_in_use(const char* operation) {
  PluginInUse& shared = in_use();
  const std::lock_guard lock(shared.mutex);
  if (shared.plugin == nullptr) {
    return Status(Code::kInvalidArgument, operation, "no plugin is loaded: call tcpx_load_plugin or tcpx_get_device_count first");
  }
  return shared.plugin.get();  // stays: a plugin in use is never exchanged
}

/// Runs `body(plugin)` on the plugin in use.
template <class Body>
int with_plugin(const char* operation, const Body& body) noexcept {
  return guarded(operation, [&] {
    const auto plugin = plugin_in_use(operation);
    return plugin.is_ok() ? body(**plugin) : fail(plugin.status());
  });
}

bool is_same_library(const std::string& path, const std::string& other) {
  std::error_code ignored;  // "embedded" is no file, and a path may lead nowhere
  return path == other || std::filesystem::equivalent(path, other, ignored);
}

Status load(const std::string& path) {
  PluginInUse& shared = in_use();
  const std::lock_guard one_at_a_time(shared.loading);
  {
    const std::lock_guard lock(shared.mutex);
    if (shared.plugin != nullptr) {
      if (path.empty() || is_same_library(path, shared.source.path)) return Status::ok();
      // Told before anything of it runs: what a plugin starts in its init, nobody could stop.
      return Status(Code::kInvalidArgument, "tcpx_load_plugin",
                    path + ": another plugin is in use already, " + shared.plugin->name() + " (" + shared.source.path + ")");
    }
  }
  TCPX_ASSIGN_OR_RETURN(auto loaded, tcpx::PluginLoader::load({.path = path}));
  const std::lock_guard lock(shared.mutex);
  shared.plugin = std::move(loaded.plugin);
  shared.source = std::move(loaded.source);
  return Status::ok();
}

/// A copy of `text` that stays until the process ends. Few: one or two per device.
const char* keep(const std::string& text) {
  PluginInUse& shared = in_use();
  const std::lock_guard lock(shared.mutex);
  return shared.strings.insert(text).first->c_str();
}

template <class Id>
Id typed(void* pointer) {
  return static_cast<Id>(reinterpret_cast<uintptr_t>(pointer));
}

template <class Id>
void* raw(Id id) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(id));
}

/// Writes the pointer, or NULL for "not yet", into `out` on success.
template <class Id>
int give(const Result<std::optional<Id>>& result, void** out) {
  if (!result.is_ok()) return fail(result.status());
  *out = result->has_value() ? raw(**result) : nullptr;
  return TCPX_OK;
}
template <class Id>
int give(const Result<Id>& result, void** out) {
  if (!result.is_ok()) return fail(result.status());
  *out = raw(*result);
  return TCPX_OK;
}

int net_device_type_of(tcpx::NetDeviceType type) {
  switch (type) {
    case tcpx::NetDeviceType::kHost:
      return TCPX_NET_DEVICE_HOST;
    case tcpx::NetDeviceType::kUnpack:
      return TCPX_NET_DEVICE_UNPACK;
    case tcpx::NetDeviceType::kUnknown:
      break;
  }
  return TCPX_NET_DEVICE_UNKNOWN;
}

}  // namespace

extern "C" {

int tcpx_load_plugin(const char* path) {
  return guarded(__func__, [&] { return translate(load(path != nullptr ? path : "")); });
}

int tcpx_get_device_count() {
  const char* operation = __func__;
  return guarded(operation, [&] {
    // A positive code of the plugin could not be told from a count.
    if (const Status loaded = load(""); !loaded.is_ok()) return fail_negative(loaded);
    const auto plugin = plugin_in_use(operation);
    if (!plugin.is_ok()) return fail_negative(plugin.status());
    const auto count = (*plugin)->device_count();
    return count.is_ok() ? *count : fail_negative(count.status());
  });
}

int tcpx_get_properties(int dev, struct tcpx_net_properties* properties) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (properties == nullptr) return invalid(operation, "properties is NULL");
    if (properties->struct_size != sizeof *properties) return invalid(operation, "struct_size is not that of this library");
    const auto known = plugin.properties(dev);
    if (!known.is_ok()) return fail(known.status());
    const int ptr_support = (known->host_memory ? TCPX_PTR_HOST : 0) | (known->cuda_memory ? TCPX_PTR_CUDA : 0) |
                            (known->dma_buf ? TCPX_PTR_DMABUF : 0);
    *properties = tcpx_net_properties{.struct_size = sizeof *properties,
                                      .name = keep(known->name),
                                      .pci_path = known->pci_path ? keep(*known->pci_path) : nullptr,
                                      .guid = known->guid,
                                      .ptr_support = ptr_support,
                                      .speed = known->speed_mbps,
                                      .port = known->port,
                                      .latency = known->latency_us,
                                      .max_comms = known->max_comms,
                                      .max_recvs = known->max_recvs,
                                      .net_device_type = net_device_type_of(known->net_device_type),
                                      .net_device_version = known->net_device_version};
    return TCPX_OK;
  });
}

int tcpx_listen(int dev, void* handle, void** listen_comm) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (handle == nullptr) return invalid(operation, "handle is NULL");
    if (listen_comm == nullptr) return invalid(operation, "listen_comm is NULL");
    tcpx::Handle made;
    const int code = give(plugin.listen(dev, made), listen_comm);
    if (code == TCPX_OK) std::memcpy(handle, made.bytes.data(), made.bytes.size());
    return code;
  });
}

int tcpx_connect_v5(int dev, void* handle, void** send_comm, void** /*send_dev_handle*/) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (handle == nullptr) return invalid(operation, "handle is NULL");
    if (send_comm == nullptr) return invalid(operation, "send_comm is NULL");
    if (reinterpret_cast<uintptr_t>(handle) % alignof(tcpx::Handle) != 0) return invalid(operation, "handle is not aligned to 8");
    // The caller's own buffer: a plugin may find its state again by its address.
    return give(plugin.try_connect(dev, *static_cast<tcpx::Handle*>(handle)), send_comm);
  });
}

int tcpx_accept_v5(void* listen_comm, void** recv_comm, void** recv_dev_handle) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (listen_comm == nullptr) return invalid(operation, "listen_comm is NULL");
    if (recv_comm == nullptr) return invalid(operation, "recv_comm is NULL");
    tcpx::DeviceHandleStorage device_handle;
    const auto accepted = plugin.try_accept(typed<tcpx::ListenComm>(listen_comm), device_handle);
    if (accepted.is_ok() && accepted->has_value() && recv_dev_handle != nullptr && *recv_dev_handle != nullptr) {
      std::memcpy(*recv_dev_handle, device_handle.bytes, TCPX_DEVICE_HANDLE_BYTES);
    }
    return give(accepted, recv_comm);
  });
}

// A comm of either direction may come here. The plugin's call is the same for both, so the type chosen does not matter.
int tcpx_reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (comm == nullptr) return invalid(operation, "comm is NULL");
    if (data == nullptr) return invalid(operation, "data is NULL");
    if (mhandle == nullptr) return invalid(operation, "mhandle is NULL");
    if (type != TCPX_PTR_HOST && type != TCPX_PTR_CUDA)
      return invalid(operation, "type is neither TCPX_PTR_HOST nor TCPX_PTR_CUDA");
    const auto memory_type = static_cast<tcpx::MemoryType>(type);
    const bool cuda = memory_type == tcpx::MemoryType::kCuda;
    const tcpx::Pages pages = cuda ? tcpx::whole_pages(data, size) : tcpx::Pages{static_cast<std::byte*>(data), size};
    return give(plugin.register_memory(typed<tcpx::SendComm>(comm), pages.begin, pages.bytes, memory_type), mhandle);
  });
}

int tcpx_dereg_mr(void* comm, void* mhandle) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (comm == nullptr) return invalid(operation, "comm is NULL");
    if (mhandle == nullptr) return invalid(operation, "mhandle is NULL");
    return translate(plugin.deregister_memory(typed<tcpx::SendComm>(comm), typed<tcpx::MemoryHandle>(mhandle)));
  });
}

int tcpx_isend(void* send_comm, void* data, int size, int tag, void* mhandle, void** request) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (send_comm == nullptr) return invalid(operation, "send_comm is NULL");
    if (size < 0) return invalid(operation, "size is negative");
    if (data == nullptr && size > 0) return invalid(operation, "data is NULL");
    if (mhandle == nullptr) return invalid(operation, "mhandle is NULL");
    if (request == nullptr) return invalid(operation, "request is NULL");
    return give(plugin.try_send(typed<tcpx::SendComm>(send_comm), data, static_cast<size_t>(size), tag,
                                typed<tcpx::MemoryHandle>(mhandle)),
                request);
  });
}

int tcpx_irecv(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (recv_comm == nullptr) return invalid(operation, "recv_comm is NULL");
    if (n != 1) return invalid(operation, "n is not 1");
    if (data == nullptr || sizes == nullptr || tags == nullptr || mhandles == nullptr)
      return invalid(operation, "an array is NULL");
    if (request == nullptr) return invalid(operation, "request is NULL");
    if (sizes[0] < 0) return invalid(operation, "sizes[0] is negative");
    if (data[0] == nullptr && sizes[0] > 0) return invalid(operation, "data[0] is NULL");
    if (mhandles[0] == nullptr) return invalid(operation, "mhandles[0] is NULL");
    return give(plugin.try_recv(typed<tcpx::RecvComm>(recv_comm), data[0], static_cast<size_t>(sizes[0]), tags[0],
                                typed<tcpx::MemoryHandle>(mhandles[0])),
                request);
  });
}

int tcpx_test(void* request, int* done, int* size) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (request == nullptr) return invalid(operation, "request is NULL");
    if (done == nullptr) return invalid(operation, "done is NULL");
    const auto completion = plugin.test(typed<tcpx::Request>(request));
    if (!completion.is_ok()) return fail(completion.status());
    *done = completion->done ? 1 : 0;
    if (size != nullptr) *size = completion->reported_bytes;
    return TCPX_OK;
  });
}

int tcpx_irecv_consumed(void* recv_comm, int n, void* request) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (recv_comm == nullptr) return invalid(operation, "recv_comm is NULL");
    if (n != 1) return invalid(operation, "n is not 1");
    if (request == nullptr) return invalid(operation, "request is NULL");
    return translate(plugin.consumed(typed<tcpx::RecvComm>(recv_comm), typed<tcpx::Request>(request)));
  });
}

int tcpx_close_send(void* send_comm) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (send_comm == nullptr) return invalid(operation, "send_comm is NULL");
    return translate(plugin.close(typed<tcpx::SendComm>(send_comm)));
  });
}

int tcpx_close_recv(void* recv_comm) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (recv_comm == nullptr) return invalid(operation, "recv_comm is NULL");
    return translate(plugin.close(typed<tcpx::RecvComm>(recv_comm)));
  });
}

int tcpx_close_listen(void* listen_comm) {
  const char* operation = __func__;
  return with_plugin(operation, [&](tcpx::NetPlugin& plugin) {
    if (listen_comm == nullptr) return invalid(operation, "listen_comm is NULL");
    return translate(plugin.close(typed<tcpx::ListenComm>(listen_comm)));
  });
}

const char* tcpx_last_error() {
  return last_error.c_str();
}

}  // extern "C"
