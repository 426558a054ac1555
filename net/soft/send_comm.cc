#include "net/soft/send_comm.h"

#include <algorithm>
#include <bit>

#include "base/log.h"
#include "base/text.h"
#include "net/soft/send_socket.h"
#include "tcpx/help.h"

namespace tcpx::soft {
namespace {

// Chunks up to this size may be taken by a socket that still has others to write, so that one system call sends several.
constexpr uint32_t kSmallChunkBytes = 16 * 1024;
// Most bytes to send at which who sends the next message begins to copy it, in whole slots: that takes the GPU less than to copy the parts
// that sockets take.
constexpr uint64_t kStagedBytes = 8 * 1024 * 1024;

}  // namespace

SoftSendComm::SoftSendComm(MemoryOps& memory, int device, std::shared_ptr<IoPool> io, std::shared_ptr<StagingPool> staging,
                           ConnectedSockets& sockets)
    : SoftComm(ObjectKind::kSendComm, memory, device, std::move(io), sockets),
      chunking_{.most_bytes = sockets.chunk_bytes,
                // More than the threads that write cannot write at a time.
                .sockets = static_cast<uint32_t>(
                    std::min(io_->size(), std::max(sockets.device_sockets, sockets.data.size() - sockets.device_sockets)))},
      device_sockets_(sockets.device_sockets < sockets.data.size() ? sockets.device_sockets : 0),
      headers_apart_(sockets.headers_apart),
      device_sources_(std::move(sockets.device_sources)),
      staging_(std::move(staging)),
      coming_(static_cast<uint32_t>((uint64_t{1} << sockets.data.size()) - 1)) {
  control_ = std::make_unique<ControlSocket>(std::move(sockets.control), *this);
}

Result<std::unique_ptr<SoftSendComm>> SoftSendComm::create(MemoryOps& memory, int device, std::shared_ptr<IoPool> io,
                                                           std::shared_ptr<StagingPool> staging, ConnectedSockets sockets) {
  std::unique_ptr<SoftSendComm> comm(new SoftSendComm(memory, device, std::move(io), std::move(staging), sockets));
  for (UniqueFd& fd : sockets.data) {
    const size_t index = comm->sockets_.size();
    std::optional<devmem::DevmemSender> from_device;
    if (index < sockets.senders.size() && sockets.senders[index]) {
      from_device = std::move(sockets.senders[index]);
    } else if (comm->device_sources_ != nullptr && index < sockets.device_sockets) {
      TCPX_ASSIGN_OR_RETURN(from_device, devmem::DevmemSender::create(comm->device_sources_->calls(), fd.get()));
    }
    comm->sockets_.push_back(std::make_unique<SendSocket>(std::move(fd), *comm, *comm->staging_, index, sockets.spare_copies,
                                                          take_cipher(sockets, index), std::move(from_device)));
  }
  for (size_t i = 0; i < comm->sockets_.size(); ++i)
    TCPX_RETURN_IF_ERROR(comm->sockets_[i]->start(comm->io_->at(sockets.placement.thread_of(i))));
  TCPX_RETURN_IF_ERROR(comm->control_->start(comm->io_->any()));
  return comm;
}

SoftSendComm::~SoftSendComm() {
  end();
  for (size_t slot = 0; slot < kRequests; ++slot) {
    if (unsent_chunks_[slot].load() != 0) io_->bytes_to_send().fetch_sub(sizes_[slot].load());
  }
  uint64_t sends = 0, copied = 0;
  for (const auto& socket : sockets_) sends += socket->device_sends(), copied += socket->device_sends_copied();
  if (sends > 0)
    log(LogLevel::kInfo, "tcpx-soft: to ", peer_, " went ", sends, " sends from device memory by ", nic_, ", ", copied,
        " of them copied");
}

void SoftSendComm::stop_data_sockets() {
  for (const auto& socket : sockets_) socket->close();
  drop_staged();
}

void SoftSendComm::drop_staged() {
  std::array<StagingPool::Staged, kRequests> unclaimed;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < kRequests; ++i) unclaimed[i].swap(messages_[i].staged);
  }
  // Their copies are waited for here, without the lock.
}

void SoftSendComm::staging_changed() {
  for (const auto& socket : sockets_) socket->kick();
}

Status SoftSendComm::prepare_region(SoftRegion& region) {
  if (device_sources_ != nullptr) {
    if (auto source = device_sources_->bind(whole_pages(region.data, region.bytes)); source.is_ok())
      region.source = *std::move(source);
    if (region.source != nullptr && device_sockets_ == 0) return Status::ok();
  }
  return region.host_readable ? Status::ok() : staging_->prepare();
}

bool SoftSendComm::region_in_use(const SoftRegion* region) const {
  for (uint64_t sequence = reported_; sequence < posted_; ++sequence) {
    if (messages_[sequence % kRequests].region == region) return true;
  }
  return false;
}

Result<abi::TcpxRequest*> SoftSendComm::isend(const void* data, int size, int tag, const SoftRegion* region) {
  if (size < 0) return refused("isend", concat("size ", size));
  const auto bytes = static_cast<uint32_t>(size);
  bool copy_now = false, by_device = false;
  {
    MutexLock lock(mutex_);
    if (!failed()) {
      TCPX_RETURN_IF_ERROR(check_send(data, bytes, region));
      by_device = goes_by_device(*region);
      // In a stream the sockets copy ahead themselves.
      const bool is_stream = io_->bytes_to_send().load(std::memory_order_relaxed) + bytes > kStagedBytes;
      copy_now = !region->host_readable && (region->source == nullptr || !by_device) && bytes > 0 && !is_stream;
    }
  }
  StagingPool::Staged staged;
  if (copy_now) {
    auto started = stage(static_cast<const std::byte*>(data), bytes);
    if (started.is_ok()) {
      staged = std::move(*started);
    } else {
      fail(started.status());
    }
  }
  abi::TcpxRequest* request = nullptr;
  uint32_t kicked = 0;
  {
    MutexLock lock(mutex_);
    if (!failed()) {
      request = post({.data = static_cast<const std::byte*>(data),
                      .region = region,
                      .size = bytes,
                      .tag = tag,
                      .cut = chunking_.cut_for(bytes, io_->bytes_to_send().load(std::memory_order_relaxed) + bytes),
                      .next_offset = 0,
                      .by_device = by_device,
                      .staged = std::move(staged)});
      kicked = take_idle_sockets(unsent_chunks_[(posted_ - 1) % kRequests].load(std::memory_order_relaxed));
    }
  }
  if (request == nullptr) return report_failure();
  kick_sockets(kicked);
  return request;
}

Status SoftSendComm::check_send(const void* data, uint32_t bytes, const SoftRegion* region) const {
  constexpr const char* kOperation = "isend";
  const auto checked = check_region(region, data, bytes, kOperation);
  if (!checked.is_ok()) return checked.status();
  if (posted_ - reported_ < kRequests) return Status::ok();
  return Status(Code::kExhausted, kOperation,
                concat(kRequests, " requests are outstanding: test the oldest", name_in_detail(Hint::kTooManyRequests)));
}

Result<StagingPool::Staged> SoftSendComm::stage(const std::byte* data, uint32_t bytes) {
  // A copy needs the comm's GPU to be current, which the contract requires of the thread that connects or registers, not of the
  // one that sends. Making it current here could cost that thread a context on a GPU it has not used yet.
  StagingPool::Staged staged;
  if (!staging_->is_current_here()) return staged;
  for (auto& place : staged) {
    StagingPool::Slot slot = bytes > 0 ? staging_->try_take() : StagingPool::Slot();
    if (!slot) break;
    const uint32_t part = std::min(bytes, StagingPool::kSlotBytes);
    TCPX_RETURN_IF_ERROR(slot.copy_now(data, part));
    slot.move_to(*this);
    place = std::make_shared<StagingPool::SharedSlot>(std::move(slot), part);
    data += part;
    bytes -= part;
  }
  return staged;
}

abi::TcpxRequest* SoftSendComm::post(Message content) {
  const uint64_t slot = posted_ % kRequests;
  abi::TcpxRequest& request = requests_[slot];
  request = {};
  request.comm = static_cast<Object*>(this);
  request.data = const_cast<std::byte*>(content.data);
  request.op = abi::kRequestOpSend;
  request.mem_type = static_cast<int32_t>(content.region->type);
  request.size = static_cast<int32_t>(content.size);
  const uint32_t chunks = count_chunks(content.size, content.cut);
  unsent_chunks_[slot].store(chunks, std::memory_order_relaxed);
  sizes_[slot].store(content.size, std::memory_order_relaxed);
  io_->bytes_to_send().fetch_add(content.size, std::memory_order_relaxed);
  unclaimed_ += chunks;
  messages_[slot] = std::move(content);
  ++posted_;
  return &request;
}

// Idle ones only: a full socket would hold the message up while others have room. Lowest numbers first: light traffic then
// takes the same sockets each time, with threads awake and connections in the cache.
uint32_t SoftSendComm::take_idle_sockets(uint32_t chunks) {
  uint32_t taken = 0;
  if (claimed_ == posted_) return taken;
  for (size_t i = 0; i < sockets_.size() && chunks > 0; ++i) {
    const uint32_t bit = 1u << i;
    if ((idle_ & bit) == 0 || !may_claim(i)) continue;
    taken |= bit;
    --chunks;
  }
  idle_ &= ~taken;
  coming_ |= taken;
  return taken;
}

void SoftSendComm::kick_sockets(uint32_t taken) {
  for (; taken != 0; taken &= taken - 1) sockets_[static_cast<size_t>(std::countr_zero(taken))]->kick();
}

void SoftSendComm::on_control_ready() {
  if (!headers_apart_) return;
  uint32_t kicked = 0;
  {
    MutexLock lock(mutex_);
    if (!failed() && flush_header()) kicked = take_idle_sockets(unclaimed_);
  }
  kick_sockets(kicked);
}

bool SoftSendComm::send_header(const ChunkHeader& header) {
  if (!flush_header()) return false;
  encode_chunk_header(header, header_);
  const auto sent = control_->try_send(header_);
  if (!sent.is_ok()) set_failure(sent.status());
  if (!sent.is_ok() || *sent == 0) return false;
  header_left_ = kChunkHeaderBytes - *sent;
  header_sequence_ = header.sequence;
  if (header_left_ > 0) unsent_chunks_[header.sequence % kRequests].fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool SoftSendComm::flush_header() {
  if (header_left_ == 0) return true;
  const auto sent = control_->try_send(std::span(header_).last(header_left_));
  if (!sent.is_ok()) set_failure(sent.status());
  if (!sent.is_ok()) return false;
  header_left_ -= *sent;
  if (header_left_ > 0) return false;
  chunk_sent(header_sequence_);
  return true;
}

bool SoftSendComm::goes_by_device(const SoftRegion& region) {
  return device_sockets_ == 0 || choices_.device_for(posted_).value_or(region.type == MemoryType::kCuda);
}

Status SoftSendComm::on_control_bytes(std::span<const std::byte> bytes) {
  if (device_sockets_ == 0) return Owner::on_control_bytes(bytes);
  MutexLock lock(mutex_);
  return choices_.take(bytes, posted_);
}

bool SoftSendComm::claim(size_t socket, uint64_t queued, OutgoingChunk& chunk) {
  uint32_t kicked = 0;
  bool has_one = false;
  {
    MutexLock lock(mutex_);
    const uint64_t before = claimed_;
    has_one = claim_locked(socket, queued, chunk);
    if (device_sockets_ > 0 && claimed_ != before && claimed_ != posted_ && !may_claim(socket))
      kicked = take_idle_sockets(unclaimed_);
  }
  kick_sockets(kicked);
  return has_one;
}

bool SoftSendComm::claim_locked(size_t socket, uint64_t queued, OutgoingChunk& chunk) {
  const bool ahead = queued > 0;
  coming_ &= ~(1u << socket);
  if (failed() || claimed_ == posted_ || !may_claim(socket)) {
    if (!ahead) idle_ |= 1u << socket;
    return false;
  }
  Message& next = message(claimed_);
  const uint32_t bytes = std::min(next.cut, next.size - next.next_offset);
  const BoundSource* const source = next.by_device ? next.region->source.get() : nullptr;
  const bool is_staged = StagingPool::slot_of(next.staged, next.next_offset) != nullptr;
  const bool is_copied = !next.region->host_readable && source == nullptr && !is_staged;
  const uint64_t share = io_->bytes_to_send().load(std::memory_order_relaxed) / chunking_.sockets;
  const bool left_for_others = !is_copied || unclaimed_ <= static_cast<uint32_t>(std::popcount(coming_)) || queued >= share;
  if (ahead && bytes > kSmallChunkBytes && left_for_others) return false;
  chunk.header = {.sequence = claimed_,
                  .total = next.size,
                  .offset = next.next_offset,
                  .bytes = bytes,
                  .tag = next.tag,
                  .cut = next.cut,
                  .socket = headers_apart_ ? static_cast<uint16_t>(socket) : uint16_t{0}};
  chunk.header_is_sent = headers_apart_;
  if (headers_apart_ && !send_header(chunk.header)) {
    if (!ahead) idle_ |= 1u << socket;
    return false;
  }
  idle_ &= ~(1u << socket);
  --unclaimed_;
  chunk.data = next.data + next.next_offset;
  chunk.host_readable = next.region->host_readable;
  chunk.source = source;
  chunk.is_copied = is_copied;
  chunk.list = next.region->list.get();
  chunk.staged = next.staged;
  next.next_offset += bytes;
  if (StagingPool::slot_of(next.staged, next.next_offset) == nullptr) next.staged = {};
  if (next.next_offset == next.size) ++claimed_;
  return true;
}

void SoftSendComm::chunk_sent(uint64_t sequence) {
  const size_t slot = sequence % kRequests;
  const uint32_t size = sizes_[slot].load(std::memory_order_relaxed);  // the slot is this message's until its last chunk is sent
  if (unsent_chunks_[slot].fetch_sub(1, std::memory_order_release) > 1) return;
  io_->bytes_to_send().fetch_sub(size, std::memory_order_relaxed);
  tell();
}

void SoftSendComm::fail(const Status& why) {
  MutexLock lock(mutex_);
  set_failure(why);
}

Result<TestAnswer> SoftSendComm::test(const abi::TcpxRequest* request) {
  if (request == unfinished_ && !has_failed() && unsent_chunks_[slot_of(request)].load(std::memory_order_relaxed) != 0) {
    return TestAnswer{};
  }
  {
    MutexLock lock(mutex_);
    TCPX_RETURN_IF_ERROR(check_oldest(request));
    unfinished_ = nullptr;
    if (unsent_chunks_[reported_ % kRequests].load(std::memory_order_acquire) == 0) {
      const uint32_t size = message(reported_).size;
      ++reported_;
      return TestAnswer{.done = true, .bytes = static_cast<int32_t>(size)};
    }
    if (!failed()) {
      unfinished_ = request;
      return TestAnswer{};
    }
  }
  return report_failure();
}

}  // namespace tcpx::soft
