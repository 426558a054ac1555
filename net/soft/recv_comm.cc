#include "net/soft/recv_comm.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "net/soft/header_socket.h"
#include "net/soft/recv_socket.h"
#include "tcpx/help.h"

namespace tcpx::soft {
namespace {

// Silence allowed on the other sockets of a connection after one has ended, before incomplete messages are given up. A peer
// that closes or dies ends all of them together; this is for a single socket that was cut.
constexpr Duration kLostSocketGrace = std::chrono::milliseconds(500);

uint32_t pages_for(uint32_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes;
}

}  // namespace

SoftRecvComm::SoftRecvComm(MemoryOps& memory, int device, std::shared_ptr<IoPool> io, std::shared_ptr<PagePool> pool,
                           UnpackQueue queue, ConnectedSockets& sockets)
    : SoftComm(ObjectKind::kRecvComm, memory, device, std::move(io), sockets),
      most_chunk_bytes_(sockets.chunk_bytes),
      pool_(std::move(pool)),
      device_pool_(std::move(sockets.device_pool)),
      has_device_sockets_(sockets.device_sockets > 0 && sockets.device_sockets < sockets.data.size()),
      queue_(std::move(queue)) {
  if (sockets.headers_apart) {
    auto headers = std::make_unique<HeaderSocket>(std::move(sockets.control), *this, sockets_);
    headers_ = headers.get();
    control_ = std::move(headers);
  } else {
    control_ = std::make_unique<ControlSocket>(std::move(sockets.control), *this);
  }
}

Result<std::unique_ptr<SoftRecvComm>> SoftRecvComm::create(MemoryOps& memory, int device, std::shared_ptr<IoPool> io,
                                                           std::shared_ptr<PagePool> pool, ConnectedSockets sockets) {
  TCPX_ASSIGN_OR_RETURN(auto queue, UnpackQueue::create(memory, device, pool->device_base()));
  std::unique_ptr<SoftRecvComm> comm(new SoftRecvComm(memory, device, std::move(io), std::move(pool), std::move(queue), sockets));
  for (UniqueFd& fd : sockets.data) {
    auto cipher = take_cipher(sockets, comm->sockets_.size());
    const bool is_device = comm->sockets_.size() < sockets.device_sockets;
    comm->sockets_.push_back(std::make_unique<RecvSocket>(std::move(fd), *comm, comm->sockets_.size(), sockets.spare_copies,
                                                          std::move(cipher), sockets.headers_apart, comm->device_pool_.get(),
                                                          is_device));
  }
  for (size_t i = 0; i < comm->sockets_.size(); ++i)
    TCPX_RETURN_IF_ERROR(comm->sockets_[i]->start(comm->io_->at(sockets.placement.thread_of(i))));
  TCPX_RETURN_IF_ERROR(comm->control_->start(comm->io_->any()));
  return comm;
}

SoftRecvComm::~SoftRecvComm() {
  end();
  if (device_pool_ != nullptr) tell_counts();
  MutexLock lock(mutex_);
  for (Message& slot : messages_) pool_->give_back(*this, slot.pages);
}

void SoftRecvComm::tell_counts() const {
  devmem::ReceiveCounts sum;
  uint64_t give_backs = 0;
  for (const auto& socket : sockets_) {
    sum.add(socket->device_counts());
    give_backs += socket->give_backs();
  }
  log(LogLevel::kInfo, "tcpx-soft: from ", peer_, " came ", sum.pool_bytes, " bytes into device memory by ", nic_, ", in ",
      sum.fragments, " fragments, and ", sum.linear_bytes, " into host memory; ", sum.reads, " reads, ", give_backs,
      " calls that gave pages back");
}

void SoftRecvComm::stop_data_sockets() {
  for (const auto& socket : sockets_) socket->stop();
  pool_->forget(*this);  // a wait that is over must not hold up other comms
}

void SoftRecvComm::kick_sockets(uint64_t up_to) {
  for (const auto& socket : sockets_) socket->kick_if_parked(up_to);
}

bool SoftRecvComm::region_in_use(const SoftRegion* region) const {
  for (uint64_t sequence = consumed_; sequence < posted_; ++sequence) {
    const Message& posted = messages_[sequence % kRequests];
    if (!posted.is_complete() && posted.region == region) return true;
  }
  return false;
}

Result<abi::TcpxRequest*> SoftRecvComm::irecv(void* data, int size, int tag, const SoftRegion* region) {
  constexpr const char* kOperation = "irecv";
  if (size < 0) return refused(kOperation, concat("size ", size));
  abi::TcpxRequest* request = nullptr;
  {
    MutexLock lock(mutex_);
    if (!failed()) {
      TCPX_ASSIGN_OR_RETURN(auto checked, check_region(region, data, static_cast<uint64_t>(size), kOperation));
      const bool bounced = checked->type == MemoryType::kCuda;
      const uint64_t most_bytes = bounced ? uint64_t{std::min(kMaxFragments, pool_->page_count())} * kPageBytes : INT32_MAX;
      if (static_cast<uint64_t>(size) > most_bytes) {
        return refused(kOperation, concat(size, " bytes: a receive of CUDA memory holds at most ", most_bytes,
                                          " (2048 fragments, and the pool of UCCL_TCPX_SOFT_POOL_BYTES)"));
      }
      const uint32_t most = bounced || cuda_receives_ > 0 ? kQueueDepth : kRequests;
      if (posted_ - consumed_ >= most) {
        return Status(Code::kExhausted, kOperation,
                      concat(most, " receives are posted: consume the oldest", name_in_detail(Hint::kTooManyRequests)));
      }
      Message& slot = message(posted_);
      slot.data = static_cast<std::byte*>(data);
      slot.region = region;
      slot.posted_bytes = static_cast<uint32_t>(size);
      slot.posted_tag = tag;
      slot.missing_chunks = 1;  // until the first one tells the number
      request = &requests_[posted_ % kRequests];
      request->comm = static_cast<Object*>(this);
      request->data = data;
      request->op = abi::kRequestOpRecv;
      request->mem_type = static_cast<int32_t>(region->type);
      request->size = size;
      request->unpack_slot.cnt = nullptr;
      if (bounced) ++cuda_receives_;
      if (has_device_sockets_ && choices_.choose(posted_, bounced)) tell_choice();
      if (begun_ == posted_++) kick_sockets(begun_);  // otherwise earlier messages must begin first
      be_patient_again();
    }
  }
  if (request == nullptr) return report_failure();
  return request;
}

void SoftRecvComm::on_control_ready() {
  if (!choice_waits_.load()) return;
  MutexLock lock(mutex_);
  tell_choice();
}

bool SoftRecvComm::begin_message(const ChunkHeader& header) {
  if (header.sequence != begun_ || begun_ == posted_) return false;
  Message& target = message(begun_);
  target.too_large = header.total > target.posted_bytes;
  if (!target.too_large && header.total > 0 && target.region->type == MemoryType::kCuda) {
    waiting_for_pages_ = !pool_->try_take(*this, pages_for(header.total), target.pages);
    if (waiting_for_pages_) return false;
  }
  target.total = header.total;
  target.cut = header.cut;
  target.missing_chunks = count_chunks(header.total, header.cut);
  target.chunk_seen.assign(target.missing_chunks, false);
  target.is_listed = device_pool_ != nullptr && !target.pages.empty();
  target.fragments = 0;
  target.tokens.assign(target.is_listed ? sockets_.size() : 0, 0);
  abi::TcpxRequest& request = requests_[begun_ % kRequests];
  queue_.open_slot(begun_, request);
  ++begun_;
  be_patient_again();  // the time spent waiting for pages was not the peer's silence
  if (header.tag != target.posted_tag) {
    log(LogLevel::kDebug, "tcpx-soft: message ", header.sequence, " from ", peer_, " has tag ", header.tag, ", posted with ",
        target.posted_tag, ": messages pair in post order", name_in_detail(Hint::kTagsIgnored));
  }
  if (target.too_large) {
    log(LogLevel::kWarning, "tcpx-soft: message ", header.sequence, " from ", peer_, " has ", header.total, " bytes, ",
        target.posted_bytes, " were posted: discarded, that receive fails");
  }
  return true;
}

Status SoftRecvComm::check_chunk(const ChunkHeader& header, const Message& target) const {
  constexpr const char* kOperation = "receive chunk";
  if (header.sequence < reported_)
    return Status(Code::kProtocol, kOperation, concat("message ", header.sequence, " is over already"));
  if (header.total != target.total) {
    return Status(Code::kProtocol, kOperation,
                  concat("message ", header.sequence, " of ", target.total, " bytes now has ", header.total));
  }
  if (header.cut != target.cut) {
    return Status(Code::kProtocol, kOperation,
                  concat("message ", header.sequence, " cut every ", target.cut, " bytes is now cut every ", header.cut));
  }
  if (target.chunk_seen[header.offset / target.cut]) {
    return Status(Code::kProtocol, kOperation, concat("offset ", header.offset, " of message ", header.sequence, " came twice"));
  }
  return Status::ok();
}

Landing SoftRecvComm::begin_chunk(RecvSocket& asker, const ChunkHeader& header, std::vector<iovec>& destination) {
  Status broken;
  {
    MutexLock lock(mutex_);
    if (failed()) return Landing::kFailed;
    if (header.sequence >= begun_) {
      // Parks before asking the pool, which does not take our lock: pages returned afterwards find the socket parked and kick it.
      asker.park(header.sequence);
      if (!begin_message(header)) return Landing::kParked;
      asker.unpark();
      kick_sockets(begun_);  // sockets with a chunk of this message, or of the next, which waited for this one to begin
    }
    Message& target = message(header.sequence);
    broken = check_chunk(header, target);
    if (broken.is_ok()) {
      target.chunk_seen[header.offset / target.cut] = true;
      if (target.too_large) return Landing::kDiscard;
      locate(header, target, destination);
      return device_pool_ != nullptr && !target.pages.empty() ? Landing::kPool : Landing::kMemory;
    }
  }
  fail(broken);
  return Landing::kFailed;
}

void SoftRecvComm::locate(const ChunkHeader& header, const Message& target, std::vector<iovec>& destination) {
  destination.clear();
  if (header.bytes == 0) return;
  if (const RangeList* const list = target.region->list.get(); list != nullptr) {
    list->append_to(destination, static_cast<uint64_t>(target.data - list->begin()) + header.offset, header.bytes);
    return;
  }
  if (target.region->type == MemoryType::kHost) {
    destination.push_back({target.data + header.offset, header.bytes});
    return;
  }
  std::byte* const base = device_pool_ != nullptr ? pool_->device_base() : pool_->host_base();
  uint32_t left = header.bytes;
  for (uint32_t i = header.offset / kPageBytes; left > 0; ++i) {  // chunks begin at page boundaries
    std::byte* page = base + pool_->offset_of(target.pages[i]);
    const uint32_t bytes = std::min(left, kPageBytes);
    if (!destination.empty() && static_cast<std::byte*>(destination.back().iov_base) + destination.back().iov_len == page) {
      destination.back().iov_len += bytes;
    } else {
      destination.push_back({page, bytes});
    }
    left -= bytes;
  }
}

void SoftRecvComm::end_chunk(const ChunkHeader& header, Landing landing) {
  bool is_oldest = false;
  {
    MutexLock lock(mutex_);
    Message& target = message(header.sequence);
    if (--target.missing_chunks > 0) return;
    abi::TcpxRequest& request = requests_[header.sequence % kRequests];
    request.size = landing == Landing::kDiscard ? 0 : static_cast<int32_t>(target.total);
    publish(header.sequence);
    ++news_;
    is_oldest = header.sequence == reported_;
  }
  if (is_oldest) tell();
}

void SoftRecvComm::publish(uint64_t sequence) {
  Message& done = message(sequence);
  const auto fragments = queue_.list(sequence);
  if (!done.is_listed) {
    done.fragments = static_cast<uint32_t>(done.pages.size());
    for (uint32_t i = 0, offset = 0; i < done.fragments; ++i, offset += kPageBytes)
      fragments[i] = {pool_->offset_of(done.pages[i]), std::min(kPageBytes, done.total - offset), offset};
  }
  queue_.publish(sequence, done.fragments, requests_[sequence % kRequests]);
}

Result<bool> SoftRecvComm::list(const ChunkHeader& header, std::span<const Fragment> fragments, size_t socket, uint32_t tokens) {
  std::vector<Fragment> listed;
  std::vector<uint32_t> pages;
  {
    MutexLock lock(mutex_);
    Message& target = message(header.sequence);
    if (!target.is_listed) return false;
    const auto list = queue_.list(header.sequence);
    if (fragments.size() <= kMaxFragments - target.fragments) {
      std::copy(fragments.begin(), fragments.end(), list.begin() + target.fragments);
      target.fragments += static_cast<uint32_t>(fragments.size());
      target.tokens[socket] += tokens;
      return true;
    }
    target.is_listed = false;
    listed.assign(list.begin(), list.begin() + target.fragments);
    pages = target.pages;
  }
  // The message is not complete before the chunk of these fragments is, and until then nobody consumes it.
  TCPX_RETURN_IF_ERROR(gather(listed, pages));
  return false;
}

Status SoftRecvComm::gather(std::span<const Fragment> listed, std::span<const uint32_t> pages) const {
  std::byte* const base = pool_->device_base();
  for (const Fragment& fragment : listed) {
    if (fragment.src_off >= pool_->front_bytes()) continue;  // it came in host memory and lies in its page
    for (uint32_t done = 0, bytes = 0; done < fragment.len; done += bytes) {
      const uint64_t offset = fragment.dst_off + done;
      const auto within = static_cast<uint32_t>(offset % kPageBytes);
      bytes = std::min(kPageBytes - within, fragment.len - done);
      TCPX_RETURN_IF_ERROR(device_pool_->copies->copy(base + pool_->offset_of(pages[offset / kPageBytes]) + within,
                                                      base + fragment.src_off + done, bytes));
    }
  }
  return Status::ok();
}

void SoftRecvComm::socket_ended(const Status& why) {
  MutexLock lock(mutex_);
  if (first_end_.is_ok()) first_end_ = why;
  be_patient_again();
  ++news_;
  tell();
}

void SoftRecvComm::be_patient_again() {
  if (!first_end_.is_ok()) silent_since_ = Clock::steady().now();
}

void SoftRecvComm::give_up_if_stuck() {
  if (failed() || first_end_.is_ok()) return;
  // Only when the oldest receive itself waits for pages: a later one that waits says nothing about the chunks still missing
  // from the oldest.
  if (waiting_for_pages_ && begun_ == reported_) return;
  uint64_t progress = 0;    // changes when bytes are read, and when bytes arrive that wake no thread yet
  bool none_left = true;    // that could still deliver the missing chunks: sequences on one socket never decrease
  bool has_unread = false;  // an I/O thread may be late: unread bytes are not the peer's silence
  if (headers_ != nullptr) {
    const uint32_t unread = headers_->unread();
    progress += headers_->reads() + unread;
    has_unread = unread > 0;
  }
  for (const auto& socket : sockets_) {
    const uint32_t unread = socket->unread();
    progress += socket->reads() + unread;
    none_left = none_left && socket->is_past_begun();
    has_unread = has_unread || unread >= socket->wakes_at();
  }
  if (std::exchange(progress_seen_, progress) != progress || has_unread) be_patient_again();
  const bool silent = Clock::steady().now() - silent_since_ > kLostSocketGrace;
  if (none_left || silent) fail_locked(Status(Code::kPeerGone, "wait for data", first_end_.to_string()));
}

void SoftRecvComm::fail_locked(const Status& why) {
  set_failure(why);
  pool_->forget(*this);  // a wait that is over must not hold up other comms
}

void SoftRecvComm::fail(const Status& why) {
  MutexLock lock(mutex_);
  fail_locked(why);
}

void SoftRecvComm::fail_without_memory() noexcept {
  SoftComm::fail_without_memory();
  pool_->forget(*this);
}

Result<TestAnswer> SoftRecvComm::test(const abi::TcpxRequest* request) {
  const uint64_t news = news_.load();
  if (request == unfinished_ && news == unfinished_as_of_ && !has_failed()) return TestAnswer{};
  {
    MutexLock lock(mutex_);
    TCPX_RETURN_IF_ERROR(check_oldest(request));
    Message& oldest = message(reported_);
    unfinished_ = nullptr;
    if (oldest.is_complete()) {
      ++reported_;
      if (!oldest.too_large) return TestAnswer{.done = true, .bytes = static_cast<int32_t>(oldest.total)};
      return refused(
          "test", concat("the message has ", oldest.total, " bytes, ", oldest.posted_bytes,
                         " were posted: nothing was written; consume this receive to go on", name_in_detail(Hint::kTagsIgnored)));
    }
    give_up_if_stuck();
    if (!failed()) {
      if (first_end_.is_ok()) {  // otherwise elapsed time is news as well
        unfinished_ = request;
        unfinished_as_of_ = news;
      }
      return TestAnswer{};
    }
  }
  return report_failure();
}

Status SoftRecvComm::consumed(const abi::TcpxRequest* request) {
  constexpr const char* kOperation = "irecvConsumed";
  MutexLock lock(mutex_);
  if (consumed_ == reported_) return refused(kOperation, "no receive is finished and unconsumed");
  if (slot_of(request) != consumed_ % kRequests)
    return refused(kOperation, "not the oldest finished receive: consume in post order");
  Message& oldest = message(consumed_);
  pool_->give_back(*this, oldest.pages);
  oldest.pages.clear();
  for (size_t i = 0; i < oldest.tokens.size(); ++i)
    if (oldest.tokens[i] > 0) sockets_[i]->let_go(oldest.tokens[i]);
  if (requests_[consumed_ % kRequests].mem_type == static_cast<int32_t>(MemoryType::kCuda)) --cuda_receives_;
  ++consumed_;
  return Status::ok();
}

}  // namespace tcpx::soft
