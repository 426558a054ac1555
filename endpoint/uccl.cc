#include "tcpx/uccl.h"

#include <cstring>
#include <utility>

#include "base/text.h"

namespace tcpx::uccl {
namespace {

thread_local Status last_failure;

bool report(Status status) {
  if (status.is_ok()) return true;
  last_failure = std::move(status);
  return false;
}

// Writes the value where the caller wants it, only on success.
template <class T, class To>
Status give(const Result<T>& result, To& to) {
  if (!result.is_ok()) return result.status();
  to = static_cast<To>(*result);
  return Status::ok();
}

LocalRange range_of(uint64_t id, const void* data, size_t size) {
  return {MemoryId{id}, const_cast<void*>(data), size};
}

// The ranges of a vector call, or an error when a vector is shorter than the call says.
template <class Pointer>
Result<std::vector<LocalRange>> ranges_of(const std::vector<uint64_t>& ids, const std::vector<Pointer>& data,
                                          const std::vector<size_t>& sizes, size_t count) {
  if (ids.size() < count || data.size() < count || sizes.size() < count) {
    return Status(Code::kInvalidArgument, "read vectors",
                  concat(count, " entries wanted, there are ", ids.size(), " ids, ", data.size(), " addresses and ", sizes.size(),
                         " sizes"));
  }
  std::vector<LocalRange> ranges;
  for (size_t i = 0; i < count; ++i) ranges.push_back(range_of(ids[i], data[i], sizes[i]));
  return ranges;
}

Result<std::vector<RemoteRange>> remotes_of(const std::vector<FifoItem>& items, size_t count) {
  if (items.size() < count)
    return Status(Code::kInvalidArgument, "read vectors", concat(count, " slots wanted, there are ", items.size()));
  std::vector<RemoteRange> remotes;
  for (size_t i = 0; i < count; ++i) remotes.push_back({items[i], 0});
  return remotes;
}

}  // namespace

void serialize_fifo_item(const FifoItem& item, char* buffer) {
  std::memcpy(buffer, &item, sizeof item);
}

void deserialize_fifo_item(const char* buffer, FifoItem* item) {
  std::memcpy(item, buffer, sizeof *item);
}

Endpoint::Endpoint(uint32_t local_gpu_idx, uint32_t num_cpus) {
  auto made = tcpx::Endpoint::create({.gpu_idx = static_cast<int>(local_gpu_idx), .num_cpus = num_cpus});
  failed_ = made.status();
  if (made.is_ok()) endpoint_ = std::move(*made);
}

Endpoint::Endpoint(std::unique_ptr<tcpx::Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}

Endpoint::~Endpoint() = default;

const Status& Endpoint::last_error() {
  return last_failure;
}

template <class Body>
bool Endpoint::call(Body body) {
  return report(endpoint_ == nullptr ? failed_ : body(*endpoint_));
}

template <class Start>
bool Endpoint::begin(uint64_t* transfer_id, Start start) {
  if (transfer_id == nullptr) return report(Status(Code::kInvalidArgument, "start operation", "no place for its id: nullptr"));
  return call([&](tcpx::Endpoint& endpoint) { return give(start(endpoint), *transfer_id); });
}

bool Endpoint::connect(std::string ip_addr, int remote_gpu_idx, int remote_port, uint64_t& conn_id) {
  return call([&](tcpx::Endpoint& endpoint) { return give(endpoint.connect(ip_addr, remote_gpu_idx, remote_port), conn_id); });
}

bool Endpoint::accept(std::string& ip_addr, int& remote_gpu_idx, uint64_t& conn_id) {
  return call([&](tcpx::Endpoint& endpoint) {
    TCPX_ASSIGN_OR_RETURN(auto accepted, endpoint.accept());
    ip_addr = std::move(accepted.ip);
    remote_gpu_idx = accepted.remote_gpu_idx;
    conn_id = static_cast<uint64_t>(accepted.conn);
    return Status::ok();
  });
}

std::vector<uint8_t> Endpoint::get_metadata() {
  return endpoint_ == nullptr ? std::vector<uint8_t>() : endpoint_->get_metadata();
}

std::tuple<std::string, uint16_t, int> Endpoint::parse_metadata(const std::vector<uint8_t>& metadata) {
  auto address = tcpx::Endpoint::read_metadata(metadata);
  if (!report(address.status())) return {"", 0, 0};
  return {std::move(address->ip), address->port, address->gpu_idx};
}

bool Endpoint::add_remote_endpoint(const std::vector<uint8_t>& metadata, uint64_t& conn_id) {
  return call([&](tcpx::Endpoint& endpoint) { return give(endpoint.add_remote_endpoint(metadata), conn_id); });
}

bool Endpoint::remove_remote_endpoint(uint64_t conn_id) {
  return call([&](tcpx::Endpoint& endpoint) { return endpoint.remove_connection(ConnId{conn_id}); });
}

bool Endpoint::start_passive_accept() {
  return call([](tcpx::Endpoint& endpoint) { return endpoint.start_accepting(); });
}

bool Endpoint::reg(const void* data, size_t size, uint64_t& mr_id) {
  return call([&](tcpx::Endpoint& endpoint) { return give(endpoint.register_memory(data, size), mr_id); });
}

bool Endpoint::regv(const std::vector<const void*>& data_v, const std::vector<size_t>& size_v, std::vector<uint64_t>& mr_id_v) {
  return call([&](tcpx::Endpoint& endpoint) {
    if (data_v.size() != size_v.size())
      return Status(Code::kInvalidArgument, "register memory", concat(data_v.size(), " addresses, ", size_v.size(), " sizes"));
    std::vector<uint64_t> ids;
    for (size_t i = 0; i < data_v.size(); ++i) {
      const auto id = endpoint.register_memory(data_v[i], size_v[i]);
      if (!id.is_ok()) {
        for (const uint64_t made : ids) (void)endpoint.deregister(MemoryId{made});
        return id.status();
      }
      ids.push_back(static_cast<uint64_t>(*id));
    }
    mr_id_v = std::move(ids);
    return Status::ok();
  });
}

bool Endpoint::dereg(uint64_t mr_id) {
  return call([&](tcpx::Endpoint& endpoint) { return endpoint.deregister(MemoryId{mr_id}); });
}

bool Endpoint::advertise(uint64_t conn_id, uint64_t mr_id, void* addr, size_t len, char* out_buf) {
  return call([&](tcpx::Endpoint& endpoint) {
    if (out_buf == nullptr) return Status(Code::kInvalidArgument, "advertise", "no place for the slot: nullptr");
    FifoItem item{};
    TCPX_RETURN_IF_ERROR(give(endpoint.advertise(ConnId{conn_id}, range_of(mr_id, addr, len)), item));
    serialize_fifo_item(item, out_buf);
    return Status::ok();
  });
}

bool Endpoint::advertisev(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& addr_v,
                          const std::vector<size_t>& len_v, const std::vector<char*>& out_buf_v, size_t num_iovs) {
  const auto ranges = ranges_of(mr_id_v, addr_v, len_v, num_iovs);
  if (!report(ranges.status())) return false;
  if (out_buf_v.size() < num_iovs) return report(Status(Code::kInvalidArgument, "advertise", "fewer buffers than ranges"));
  for (size_t i = 0; i < num_iovs; ++i) {
    if (!advertise(conn_id, mr_id_v[i], addr_v[i], len_v[i], out_buf_v[i])) return false;
  }
  return true;
}

bool Endpoint::send(uint64_t conn_id, uint64_t mr_id, const void* data, size_t size) {
  return call([&](tcpx::Endpoint& endpoint) { return endpoint.send(ConnId{conn_id}, range_of(mr_id, data, size)); });
}

bool Endpoint::recv(uint64_t conn_id, uint64_t mr_id, void* data, size_t size) {
  return call([&](tcpx::Endpoint& endpoint) { return endpoint.recv(ConnId{conn_id}, range_of(mr_id, data, size)); });
}

bool Endpoint::send_async(uint64_t conn_id, uint64_t mr_id, const void* data, size_t size, uint64_t* transfer_id) {
  return begin(transfer_id,
               [&](tcpx::Endpoint& endpoint) { return endpoint.send_async(ConnId{conn_id}, range_of(mr_id, data, size)); });
}

bool Endpoint::recv_async(uint64_t conn_id, uint64_t mr_id, void* data, size_t size, uint64_t* transfer_id) {
  return begin(transfer_id,
               [&](tcpx::Endpoint& endpoint) { return endpoint.recv_async(ConnId{conn_id}, range_of(mr_id, data, size)); });
}

bool Endpoint::write(uint64_t conn_id, uint64_t mr_id, void* src, size_t size, const FifoItem& slot_item) {
  return call([&](tcpx::Endpoint& endpoint) {
    return endpoint.write(ConnId{conn_id}, range_of(mr_id, src, size), RemoteRange{slot_item});
  });
}

bool Endpoint::read(uint64_t conn_id, uint64_t mr_id, void* dst, size_t size, const FifoItem& slot_item) {
  return call([&](tcpx::Endpoint& endpoint) {
    return endpoint.read(ConnId{conn_id}, range_of(mr_id, dst, size), RemoteRange{slot_item});
  });
}

bool Endpoint::write_async(uint64_t conn_id, uint64_t mr_id, void* src, size_t size, const FifoItem& slot_item,
                           uint64_t* transfer_id) {
  return begin(transfer_id, [&](tcpx::Endpoint& endpoint) {
    return endpoint.write_async(ConnId{conn_id}, range_of(mr_id, src, size), RemoteRange{slot_item});
  });
}

bool Endpoint::read_async(uint64_t conn_id, uint64_t mr_id, void* dst, size_t size, const FifoItem& slot_item,
                          uint64_t* transfer_id) {
  return begin(transfer_id, [&](tcpx::Endpoint& endpoint) {
    return endpoint.read_async(ConnId{conn_id}, range_of(mr_id, dst, size), RemoteRange{slot_item});
  });
}

bool Endpoint::sendv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<const void*>& data_v,
                     const std::vector<size_t>& size_v, size_t num_iovs) {
  uint64_t id = 0;
  return sendv_async(conn_id, mr_id_v, data_v, size_v, num_iovs, &id) && report(endpoint_->wait(OperationId{id}));
}

bool Endpoint::recvv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& data_v,
                     const std::vector<size_t>& size_v, size_t num_iovs) {
  uint64_t id = 0;
  return recvv_async(conn_id, mr_id_v, data_v, size_v, num_iovs, &id) && report(endpoint_->wait(OperationId{id}));
}

bool Endpoint::sendv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<const void*>& data_v,
                           const std::vector<size_t>& size_v, size_t num_iovs, uint64_t* transfer_id) {
  return begin(transfer_id, [&](tcpx::Endpoint& endpoint) -> Result<OperationId> {
    TCPX_ASSIGN_OR_RETURN(const auto ranges, ranges_of(mr_id_v, data_v, size_v, num_iovs));
    return endpoint.send_async(ConnId{conn_id}, ranges);
  });
}

bool Endpoint::recvv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& data_v,
                           const std::vector<size_t>& size_v, size_t num_iovs, uint64_t* transfer_id) {
  return begin(transfer_id, [&](tcpx::Endpoint& endpoint) -> Result<OperationId> {
    TCPX_ASSIGN_OR_RETURN(const auto ranges, ranges_of(mr_id_v, data_v, size_v, num_iovs));
    return endpoint.recv_async(ConnId{conn_id}, ranges);
  });
}

bool Endpoint::writev(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& src_v,
                      const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs) {
  uint64_t id = 0;
  return writev_async(conn_id, mr_id_v, src_v, size_v, slot_item_v, num_iovs, &id) && report(endpoint_->wait(OperationId{id}));
}

bool Endpoint::readv(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& dst_v,
                     const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs) {
  uint64_t id = 0;
  return readv_async(conn_id, mr_id_v, dst_v, size_v, slot_item_v, num_iovs, &id) && report(endpoint_->wait(OperationId{id}));
}

bool Endpoint::writev_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& src_v,
                            const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs,
                            uint64_t* transfer_id) {
  return begin(transfer_id, [&](tcpx::Endpoint& endpoint) -> Result<OperationId> {
    TCPX_ASSIGN_OR_RETURN(const auto ranges, ranges_of(mr_id_v, src_v, size_v, num_iovs));
    TCPX_ASSIGN_OR_RETURN(const auto remotes, remotes_of(slot_item_v, num_iovs));
    return endpoint.write_async(ConnId{conn_id}, ranges, remotes);
  });
}

bool Endpoint::readv_async(uint64_t conn_id, const std::vector<uint64_t>& mr_id_v, const std::vector<void*>& dst_v,
                           const std::vector<size_t>& size_v, const std::vector<FifoItem>& slot_item_v, size_t num_iovs,
                           uint64_t* transfer_id) {
  return begin(transfer_id, [&](tcpx::Endpoint& endpoint) -> Result<OperationId> {
    TCPX_ASSIGN_OR_RETURN(const auto ranges, ranges_of(mr_id_v, dst_v, size_v, num_iovs));
    TCPX_ASSIGN_OR_RETURN(const auto remotes, remotes_of(slot_item_v, num_iovs));
    return endpoint.read_async(ConnId{conn_id}, ranges, remotes);
  });
}

bool Endpoint::poll_async(uint64_t transfer_id, bool* done) {
  if (done != nullptr) *done = true;
  return call([&](tcpx::Endpoint& endpoint) {
    const OperationAnswer answer = endpoint.poll(OperationId{transfer_id});
    if (done != nullptr) *done = answer.state != OperationState::kPending;
    if (answer.state == OperationState::kUnknown) return Status(Code::kNotFound, "poll", concat("no operation ", transfer_id));
    return answer.status;
  });
}

bool Endpoint::send_notif(uint64_t conn_id, const NotifyMsg& message) {
  return call([&](tcpx::Endpoint& endpoint) { return endpoint.notify(ConnId{conn_id}, message); });
}

std::vector<NotifyMsg> Endpoint::get_notifs() {
  return endpoint_ == nullptr ? std::vector<NotifyMsg>() : endpoint_->get_notifs();
}

}  // namespace tcpx::uccl
