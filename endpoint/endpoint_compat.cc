// The compatible form: bool, and `last_error` for the reason.
#include <utility>

#include "base/text.h"
#include "tcpx/endpoint.h"

namespace tcpx {
namespace {

thread_local Status last_failure;

bool told(Status status) {
  if (status.is_ok()) return true;
  last_failure = std::move(status);
  return false;
}

// Writes the value where the caller wants it, only on success.
template <class T, class To>
bool told(Result<T> result, To& to) {
  if (!result.is_ok()) return told(result.status());
  to = static_cast<To>(*result);
  return true;
}

// The iovs of a vector call. Empty and an error when a vector is shorter than the call says.
template <class Pointer>
Result<std::vector<LocalRange>> ranges_of(const std::vector<uint64_t>& ids, const std::vector<Pointer>& data,
                                          const std::vector<size_t>& sizes, size_t count) {
  if (ids.size() < count || data.size() < count || sizes.size() < count) {
    return Status(Code::kInvalidArgument, "read vectors",
                  concat(count, " entries wanted, there are ", ids.size(), " ids, ", data.size(), " addresses and ", sizes.size(),
                         " sizes"));
  }
  std::vector<LocalRange> ranges;
  for (size_t i = 0; i < count; ++i)
    ranges.push_back({MemoryId{ids[i]}, const_cast<void*>(static_cast<const void*>(data[i])), sizes[i]});
  return ranges;
}

LocalRange range_of(uint64_t id, const void* data, size_t size) {
  return {MemoryId{id}, const_cast<void*>(data), size};
}

Result<std::vector<RemoteRange>> remotes_of(const std::vector<FifoItem>& items, size_t count) {
  if (items.size() < count)
    return Status(Code::kInvalidArgument, "read vectors", concat(count, " slots wanted, there are ", items.size()));
  std::vector<RemoteRange> remotes;
  for (size_t i = 0; i < count; ++i) remotes.push_back({items[i], 0});
  return remotes;
}

Status no_place(const char* what) {
  return Status(Code::kInvalidArgument, what, "nullptr");
}

}  // namespace

const Status& Endpoint::last_error() {
  return last_failure;
}

bool Endpoint::connect(std::string ip_addr, int remote_gpu_idx, int remote_port, uint64_t& conn_id) {
  return told(connect(ip_addr, remote_gpu_idx, remote_port, std::optional<Milliseconds>()), conn_id);
}

bool Endpoint::accept(std::string& ip_addr, int& remote_gpu_idx, uint64_t& conn_id) {
  auto accepted = accept();
  if (!accepted.is_ok()) return told(accepted.status());
  ip_addr = std::move(accepted->ip);
  remote_gpu_idx = accepted->remote_gpu_idx;
  conn_id = static_cast<uint64_t>(accepted->conn);
  return true;
}

std::tuple<std::string, uint16_t, int> Endpoint::parse_metadata(const std::vector<uint8_t>& metadata) {
  auto address = read_metadata(metadata);
  if (!address.is_ok()) {
    (void)told(address.status());
    return {"", 0, 0};
  }
  return {std::move(address->ip), address->port, address->gpu_idx};
}

bool Endpoint::add_remote_endpoint(const std::vector<uint8_t>& metadata, uint64_t& conn_id) {
  return told(add_remote_endpoint(std::span<const uint8_t>(metadata)), conn_id);
}

bool Endpoint::remove_remote_endpoint(uint64_t conn_id) {
  return told(remove_connection(ConnId{conn_id}));
}

bool Endpoint::start_passive_accept() {
  return told(start_accepting());
}

bool Endpoint::reg(const void* data, size_t size, uint64_t& mr_id) {
  return told(register_memory(data, size), mr_id);
}

bool Endpoint::regv(const std::vector<const void*>& data_v, const std::vector<size_t>& size_v, std::vector<uint64_t>& mr_id_v) {
  if (data_v.size() != size_v.size())
    return told(
        Status(Code::kInvalidArgument, "register memory", concat(data_v.size(), " addresses, ", size_v.size(), " sizes")));
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < data_v.size(); ++i) {
    uint64_t id = 0;
    if (!reg(data_v[i], size_v[i], id)) {
      for (const uint64_t made : ids) (void)deregister(MemoryId{made});
      return false;
    }
    ids.push_back(id);
  }
  mr_id_v = std::move(ids);
  return true;
}

bool Endpoint::dereg(uint64_t mr_id) {
  return told(deregister(MemoryId{mr_id}));
}

bool Endpoint::send(uint64_t conn_id, uint64_t mr_id, const void* data, size_t size) {
  const LocalRange range = range_of(mr_id, data, size);
  return told(send(ConnId{conn_id}, std::span(&range, 1)));
}

bool Endpoint::recv(uint64_t conn_id, uint64_t mr_id, void* data, size_t size) {
  const LocalRange range = range_of(mr_id, data, size);
  return told(recv(ConnId{conn_id}, std::span(&range, 1)));
}

bool Endpoint::send_async(uint64_t conn_id, uint64_t mr_id, const void* data, size_t size, uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("send"));
  const LocalRange range = range_of(mr_id, data, size);
  return told(send_async(ConnId{conn_id}, std::span(&range, 1)), *transfer_id);
}

bool Endpoint::recv_async(uint64_t conn_id, uint64_t mr_id, void* data, size_t size, uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("receive"));
  const LocalRange range = range_of(mr_id, data, size);
  return told(recv_async(ConnId{conn_id}, std::span(&range, 1)), *transfer_id);
}

bool Endpoint::sendv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<const void*>& data_v,
                     const std::vector<size_t>& size_v, size_t num_iovs) {
  const auto ranges = ranges_of(mr_id_v, data_v, size_v, num_iovs);
  return told(ranges.is_ok() ? send(ConnId{conn_id}, *ranges) : ranges.status());
}

bool Endpoint::recvv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& data_v,
                     const std::vector<size_t>& size_v, size_t num_iovs) {
  const auto ranges = ranges_of(mr_id_v, data_v, size_v, num_iovs);
  return told(ranges.is_ok() ? recv(ConnId{conn_id}, *ranges) : ranges.status());
}

bool Endpoint::sendv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<const void*>& data_v,
                           const std::vector<size_t>& size_v, size_t num_iovs, uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("send"));
  const auto ranges = ranges_of(mr_id_v, data_v, size_v, num_iovs);
  if (!ranges.is_ok()) return told(ranges.status());
  return told(send_async(ConnId{conn_id}, *ranges), *transfer_id);
}

bool Endpoint::recvv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& data_v,
                           const std::vector<size_t>& size_v, size_t num_iovs, uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("receive"));
  const auto ranges = ranges_of(mr_id_v, data_v, size_v, num_iovs);
  if (!ranges.is_ok()) return told(ranges.status());
  return told(recv_async(ConnId{conn_id}, *ranges), *transfer_id);
}

bool Endpoint::advertise(uint64_t conn_id, uint64_t mr_id, void* addr, size_t len, char* out_buf) {
  if (out_buf == nullptr) return told(no_place("advertise"));
  const auto slot = advertise(ConnId{conn_id}, range_of(mr_id, addr, len));
  if (!slot.is_ok()) return told(slot.status());
  serialize_fifo_item(*slot, out_buf);
  return true;
}

bool Endpoint::advertisev(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& addr_v,
                          const std::vector<size_t>& len_v, const std::vector<char*>& out_buf_v, size_t num_iovs) {
  const auto ranges = ranges_of(mr_id_v, addr_v, len_v, num_iovs);
  if (!ranges.is_ok()) return told(ranges.status());
  if (out_buf_v.size() < num_iovs) return told(Status(Code::kInvalidArgument, "advertise", "fewer buffers than ranges"));
  for (size_t i = 0; i < num_iovs; ++i) {
    if (!advertise(conn_id, mr_id_v[i], addr_v[i], len_v[i], out_buf_v[i])) return false;
  }
  return true;
}

bool Endpoint::write(uint64_t conn_id, uint64_t mr_id, void* src, size_t size, const FifoItem& slot_item) {
  const LocalRange range = range_of(mr_id, src, size);
  const RemoteRange remote{slot_item, 0};
  return told(write(ConnId{conn_id}, std::span(&range, 1), std::span(&remote, 1)));
}

bool Endpoint::read(uint64_t conn_id, uint64_t mr_id, void* dst, size_t size, const FifoItem& slot_item) {
  const LocalRange range = range_of(mr_id, dst, size);
  const RemoteRange remote{slot_item, 0};
  return told(read(ConnId{conn_id}, std::span(&range, 1), std::span(&remote, 1)));
}

bool Endpoint::write_async(uint64_t conn_id, uint64_t mr_id, void* src, size_t size, const FifoItem& slot_item,
                           uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("write"));
  const LocalRange range = range_of(mr_id, src, size);
  const RemoteRange remote{slot_item, 0};
  return told(write_async(ConnId{conn_id}, std::span(&range, 1), std::span(&remote, 1)), *transfer_id);
}

bool Endpoint::read_async(uint64_t conn_id, uint64_t mr_id, void* dst, size_t size, const FifoItem& slot_item,
                          uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("read"));
  const LocalRange range = range_of(mr_id, dst, size);
  const RemoteRange remote{slot_item, 0};
  return told(read_async(ConnId{conn_id}, std::span(&range, 1), std::span(&remote, 1)), *transfer_id);
}

bool Endpoint::writev(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& src_v,
                      const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs) {
  uint64_t id = 0;
  return writev_async(conn_id, mr_id_v, src_v, size_v, slot_item_v, num_iovs, &id) && told(wait(OperationId{id}));
}

bool Endpoint::readv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& dst_v,
                     const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs) {
  uint64_t id = 0;
  return readv_async(conn_id, mr_id_v, dst_v, size_v, slot_item_v, num_iovs, &id) && told(wait(OperationId{id}));
}

bool Endpoint::writev_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& src_v,
                            const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs,
                            uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("write"));
  const auto ranges = ranges_of(mr_id_v, src_v, size_v, num_iovs);
  if (!ranges.is_ok()) return told(ranges.status());
  const auto remotes = remotes_of(slot_item_v, num_iovs);
  if (!remotes.is_ok()) return told(remotes.status());
  return told(write_async(ConnId{conn_id}, *ranges, *remotes), *transfer_id);
}

bool Endpoint::readv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& dst_v,
                           const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs,
                           uint64_t* transfer_id) {
  if (transfer_id == nullptr) return told(no_place("read"));
  const auto ranges = ranges_of(mr_id_v, dst_v, size_v, num_iovs);
  if (!ranges.is_ok()) return told(ranges.status());
  const auto remotes = remotes_of(slot_item_v, num_iovs);
  if (!remotes.is_ok()) return told(remotes.status());
  return told(read_async(ConnId{conn_id}, *ranges, *remotes), *transfer_id);
}

bool Endpoint::poll_async(uint64_t transfer_id, bool* done) {
  const OperationAnswer answer = poll(OperationId{transfer_id});
  if (done != nullptr) *done = answer.state != OperationState::kPending;
  switch (answer.state) {
    case OperationState::kPending:
    case OperationState::kDone:
      return true;
    case OperationState::kFailed:
      return told(answer.status);
    case OperationState::kUnknown:
      break;
  }
  return told(Status(Code::kNotFound, "poll", concat("no operation ", transfer_id)));
}

bool Endpoint::send_notif(uint64_t conn_id, const NotifyMsg& message) {
  return told(notify(ConnId{conn_id}, message));
}

}  // namespace tcpx
