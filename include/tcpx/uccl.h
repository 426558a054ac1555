// The names and the argument order of the RDMA engine of UCCL (uccl-project/uccl 1a26edf: p2p/engine.h), on top of tcpx::Endpoint.
// A program written for that engine is ported by including this file and `using namespace tcpx::uccl`, within the limits that
// docs/uccl.md gives (tests/support/engine_program.h is one, and was compiled against both).
//
// Every call returns false after any error; `last_error` has this thread's Status. Threads, completion and matching are those of
// tcpx/endpoint.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tcpx/endpoint.h"

namespace tcpx::uccl {

using FifoItem = RemoteSlot;
using tcpx::NotifyMsg;
/// Copies `item` to the 64 bytes at `buffer`, and back.
TCPX_CLASS_API void serialize_fifo_item(const FifoItem& item, char* buffer);
TCPX_CLASS_API void deserialize_fifo_item(const char* buffer, FifoItem* item);

class TCPX_CLASS_API Endpoint {
 public:
  /// A constructor cannot return a Status: on an error every later call fails with it.
  Endpoint(uint32_t local_gpu_idx, uint32_t num_cpus);
  /// On top of an endpoint that was created with its own settings. @param endpoint not null
  explicit Endpoint(std::unique_ptr<tcpx::Endpoint> endpoint);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Of this thread's last call that returned false; valid until its next one.
  static const Status& last_error();
  /// The endpoint below; nullptr when the constructor failed.
  tcpx::Endpoint* typed() { return endpoint_.get(); }

  bool connect(std::string ip_addr, int remote_gpu_idx, int remote_port, uint64_t& conn_id);
  bool accept(std::string& ip_addr, int& remote_gpu_idx, uint64_t& conn_id);
  std::vector<uint8_t> get_metadata();
  /// Address, port and GPU. Empty address and port 0 when `metadata` is malformed.
  static std::tuple<std::string, uint16_t, int> parse_metadata(const std::vector<uint8_t>& metadata);
  bool add_remote_endpoint(const std::vector<uint8_t>& metadata, uint64_t& conn_id);
  bool remove_remote_endpoint(uint64_t conn_id);
  bool start_passive_accept();

  bool reg(const void* data, size_t size, uint64_t& mr_id);
  /// Registers all of them, or none.
  bool regv(const std::vector<const void*>& data_v, const std::vector<size_t>& size_v, std::vector<uint64_t>& mr_id_v);
  bool dereg(uint64_t mr_id);
  /// Writes 64 bytes to `out_buf`: a FifoItem, serialized.
  bool advertise(uint64_t conn_id, uint64_t mr_id, void* addr, size_t len, char* out_buf);
  bool advertisev(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& addr_v,
                  const std::vector<size_t>& len_v, const std::vector<char*>& out_buf_v, size_t num_iovs);

  bool send(uint64_t conn_id, uint64_t mr_id, const void* data, size_t size);
  bool recv(uint64_t conn_id, uint64_t mr_id, void* data, size_t size);
  bool send_async(uint64_t conn_id, uint64_t mr_id, const void* data, size_t size, uint64_t* transfer_id);
  bool recv_async(uint64_t conn_id, uint64_t mr_id, void* data, size_t size, uint64_t* transfer_id);
  bool write(uint64_t conn_id, uint64_t mr_id, void* src, size_t size, const FifoItem& slot_item);
  bool read(uint64_t conn_id, uint64_t mr_id, void* dst, size_t size, const FifoItem& slot_item);
  bool write_async(uint64_t conn_id, uint64_t mr_id, void* src, size_t size, const FifoItem& slot_item, uint64_t* transfer_id);
  bool read_async(uint64_t conn_id, uint64_t mr_id, void* dst, size_t size, const FifoItem& slot_item, uint64_t* transfer_id);

  // Vectors have at least `num_iovs` entries.
  bool sendv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<const void*>& data_v,
             const std::vector<size_t>& size_v, size_t num_iovs);
  bool recvv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& data_v,
             const std::vector<size_t>& size_v, size_t num_iovs);
  bool sendv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<const void*>& data_v,
                   const std::vector<size_t>& size_v, size_t num_iovs, uint64_t* transfer_id);
  bool recvv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& data_v,
                   const std::vector<size_t>& size_v, size_t num_iovs, uint64_t* transfer_id);
  bool writev(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& src_v,
              const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs);
  bool readv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& dst_v,
             const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs);
  bool writev_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& src_v,
                    const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs,
                    uint64_t* transfer_id);
  bool readv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& dst_v,
                   const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs,
                   uint64_t* transfer_id);
  /// True while pending (`*done` false) and after success (`*done` true). False after a failure or for an unknown id, with
  /// `*done` true, so that loops end.
  bool poll_async(uint64_t transfer_id, bool* done);

  bool send_notif(uint64_t conn_id, const NotifyMsg& message);
  std::vector<NotifyMsg> get_notifs();

 private:
  template <class Body>
  bool call(Body body);
  template <class Start>
  bool begin(uint64_t* transfer_id, Start start);

  std::unique_ptr<tcpx::Endpoint> endpoint_;
  Status failed_;  // the reason when `endpoint_` is null
};

}  // namespace tcpx::uccl
