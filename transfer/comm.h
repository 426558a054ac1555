// Comm: the plugin's end of a connection, whichever way it moves bytes. The one place where the two directions' calls differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net/net_plugin.h"
#include "transfer/chunk_state.h"

namespace tcpx {

/// Owns a SendComm or RecvComm and what is registered with it. One thread at a time. The plugin must outlive it.
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
  /// NetPlugin::nic_of, of an open comm.
  std::string nic() const { return direction_ == Direction::kSend ? plugin_->nic_of(send_comm()) : plugin_->nic_of(recv_comm()); }

  /// The memory must live until it is deregistered, which the Comm does when it closes. The device's GPU must be current for
  /// kCuda.
  Result<MemoryHandle> register_memory(void* data, size_t bytes, MemoryType type);
  /// Of memory registered here that no outstanding request uses. The handle is used up on success and on error.
  Status deregister_memory(MemoryHandle handle);
  /// The same for all that is registered with the open comm. @return the first error
  Status deregister_all();

  /// Posts one send or receive of `bytes` bytes at `data`. nullopt: not now.
  Result<std::optional<Request>> try_post(std::byte* data, size_t bytes, int tag, MemoryHandle handle);
  /// Gives a receive back to the plugin.
  Status consumed(Request request);

  /// Deregisters everything and closes. No request may be outstanding. Closing twice is a no-op.
  /// @return the first error; the rest is closed all the same.
  Status close();
  /// Closes with requests outstanding, which end with the comm: afterwards the plugin touches no memory of ours. Registrations
  /// are not taken back here: they are in use until the comm is gone, and go with it (NetPlugin::close).
  Status abort();

 private:
  SendComm send_comm() const { return static_cast<SendComm>(raw_); }
  RecvComm recv_comm() const { return static_cast<RecvComm>(raw_); }
  Status take_back(MemoryHandle handle);

  NetPlugin* plugin_;
  Direction direction_;
  uintptr_t raw_;
  bool open_ = true;
  std::vector<MemoryHandle> registered_;
};

}  // namespace tcpx
