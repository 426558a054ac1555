// Comm: the plugin's end of a connection, for either direction. The plugin's calls for the two directions differ only here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/net_plugin.h"
#include "transfer/chunk_state.h"

namespace tcpx {

/// Owns a SendComm or RecvComm, and the memory registrations made with it. One thread at a time. The plugin must outlive it.
class Comm {
 public:
  Comm(NetPlugin& plugin, SendComm comm) : plugin_(&plugin), direction_(Direction::kSend), raw_(static_cast<uintptr_t>(comm)) {}
  Comm(NetPlugin& plugin, RecvComm comm) : plugin_(&plugin), direction_(Direction::kRecv), raw_(static_cast<uintptr_t>(comm)) {}
  Comm(Comm&& other) noexcept;
  Comm& operator=(Comm&&) = delete;
  ~Comm();

  Direction direction() const { return direction_; }
  NetPlugin& plugin() const { return *plugin_; }
  bool is_open() const { return open_; }
  /// NetPlugin::nic_of for this comm, which must be open.
  std::string nic() const { return direction_ == Direction::kSend ? plugin_->nic_of(send_comm()) : plugin_->nic_of(recv_comm()); }

  /// Registers memory, which must live until it is deregistered; closing the Comm deregisters what is left. The device's GPU must
  /// be current for kCuda.
  Result<MemoryHandle> register_memory(void* data, size_t bytes, MemoryType type);
  /// NetPlugin::register_list; the list's memory must live as long as that of `register_memory`.
  Result<MemoryHandle> register_list(std::shared_ptr<const RangeList> list);
  /// Deregisters memory that was registered here and that no outstanding request uses. The handle is used up on success and on
  /// error.
  Status deregister_memory(MemoryHandle handle);
  /// Deregisters everything that is registered with the comm, which must be open. @return the first error
  Status deregister_all();

  /// NetPlugin::tell_changes for this comm.
  bool tell_changes(std::function<void()> told) {
    return direction_ == Direction::kSend ? plugin_->tell_changes(send_comm(), std::move(told))
                                          : plugin_->tell_changes(recv_comm(), std::move(told));
  }
  /// Posts one send or receive of `bytes` bytes at `data`. @return nullopt: not now
  Result<std::optional<Request>> try_post(std::byte* data, size_t bytes, int tag, MemoryHandle handle);
  /// Gives a receive back to the plugin.
  Status consumed(Request request);

  /// Deregisters everything and closes. No request may be outstanding. Closing twice is a no-op.
  /// @return the first error; everything else is deregistered and closed even then
  Status close();
  /// Closes with requests outstanding. They end with the comm: afterwards the plugin touches no memory of ours. Registrations are
  /// not deregistered first, because they are in use until the comm is gone; they end with it (NetPlugin::close).
  Status abort();

 private:
  SendComm send_comm() const { return static_cast<SendComm>(raw_); }
  RecvComm recv_comm() const { return static_cast<RecvComm>(raw_); }
  template <class Register>
  Result<MemoryHandle> keep(Register call);
  Status take_back(MemoryHandle handle);

  NetPlugin* plugin_;
  Direction direction_;
  uintptr_t raw_;
  bool open_ = true;
  std::vector<MemoryHandle> registered_;
};

}  // namespace tcpx
