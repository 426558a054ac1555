#include "endpoint/entrance.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/own_thread.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "transfer/crowded_addresses.h"

namespace tcpx {
namespace {

// Longest time to set up one connection.
constexpr Duration kSetUpTime = std::chrono::seconds(10);
// Connections that are set up at once.
constexpr size_t kMostSetUps = 64;
// Descriptors of the process that each set-up may take.
constexpr size_t kDescriptorsOfOne = 16;
// After this silence a client may have to make room. Some plugins make a connection wait for nearly as long.
constexpr Duration kClientSilence = std::chrono::seconds(1);
// A client of an address that has more places than its share may have to make room this soon.
constexpr Duration kSilenceInACrowd = std::chrono::milliseconds(100);
// A distant client is heard of only once in a round trip or two, so it may be silent longer; bounded, because distance can be feigned.
constexpr int kRoundTripsOfSilence = 4;
constexpr Duration kLongestDistance = std::chrono::seconds(2);
// Clients that are making room at once: they take a moment to leave.
constexpr size_t kGoAtOnce = 8;
constexpr Duration kLookForClients = std::chrono::milliseconds(100);
constexpr Duration kLookForRoom = std::chrono::milliseconds(20);
// Bounds the wait for a caller, in case a wake-up is lost.
constexpr Duration kLookForCallers = std::chrono::seconds(1);

}  // namespace

Status Entrance::start() {
  if (thread_.joinable()) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(auto thread, start_thread("tcpx-accept", [this] { run(); }));
  thread_ = std::move(thread);
  return Status::ok();
}

Result<ConnId> Entrance::accept(Deadline deadline) {
  const auto refuse = [](Code code, const char* why) { return Status(code, "accept", why); };
  const MutexLock lock(mutex_);
  TCPX_RETURN_IF_ERROR(stopped_ ? Status::ok() : start());
  if (callers_++ == 0) trouble_ = Status::ok();
  wanted_ = true;
  changed_.notify_all();
  while (!stopped_ && !admits_ && ready_.empty() && !deadline.expired()) (void)changed_.wait_until(mutex_, deadline.at());
  --callers_;
  if (stopped_) return refuse(Code::kCancelled, "the endpoint is closing");
  if (admits_) return refuse(Code::kInvalidArgument, "connections are taken in the background since start_passive_accept");
  if (ready_.empty() && is_shortage(trouble_)) return trouble_;
  if (ready_.empty()) return refuse(Code::kTimeout, "nobody connected before the deadline");
  const ConnId conn = ready_.front();
  ready_.pop_front();
  wanted_ = callers_ > 0;
  return conn;
}

Status Entrance::admit_from_now_on() {
  const MutexLock lock(mutex_);
  if (admits_ || stopped_) return Status::ok();
  TCPX_RETURN_IF_ERROR(start());
  admits_ = true;
  ready_.clear();
  changed_.notify_all();
  return Status::ok();
}

void Entrance::stop_waiting() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Entrance::stop() {
  stop_waiting();
  if (thread_.joinable()) thread_.join();
}

void Entrance::run() {
  for (;;) {
    reap(false);
    {
      const MutexLock lock(mutex_);
      if (stopped_) break;
      if (!wanted()) {
        (void)changed_.wait_until(mutex_, Deadline::after(kLookForCallers).at());
        continue;
      }
    }
    try {
      take_one();
    } catch (const std::bad_alloc&) {  // this client is lost
      std::this_thread::sleep_for(kLookForClients);
    }
  }
  for (SetUp& setup : running_) setup.watch.stop = true;
  reap(true);
}

void Entrance::take_one() {
  auto channel = parts_.server.accept(Deadline::after(kLookForClients));
  if (channel.is_ok()) return place(std::move(*channel));
  const Status& why = channel.status();
  if (why.code() == Code::kTimeout || why.code() == Code::kCancelled) return;
  {
    const MutexLock lock(mutex_);
    const bool is_known = why.code() == trouble_.code() && why.native() == trouble_.native();
    trouble_ = why;
    if (!is_known) log(LogLevel::kWarning, "cannot take connections: ", why.to_string());
  }
  std::this_thread::sleep_for(kLookForClients);
}

// Finds a place for a client whose first frame has come.
void Entrance::place(BootstrapChannel channel) {
  for (const size_t most = bounded_by_descriptors(kMostSetUps, kDescriptorsOfOne);;) {
    reap(false);
    if (running_.size() < most) break;
    make_room(channel.peer().host(), most);
    const MutexLock lock(mutex_);
    if (stopped_) return;
    (void)changed_.wait_until(mutex_, Deadline::after(kLookForRoom).at());
  }
  // Shared because a std::function must be copyable; allocated first, while there is no place to give back if that fails.
  auto shared = std::make_shared<BootstrapChannel>(std::move(channel));
  SetUp& setup = running_.emplace_back();
  setup.address = shared->peer().host();
  setup.distance = std::min(kRoundTripsOfSilence * shared->round_trip(), kLongestDistance);
  shared->watch_with(setup.watch);
  auto thread = start_thread("tcpx-set-up", [this, &setup, shared] {
    try {
      finish(setup, parts_.set_up(std::move(*shared), Deadline::after(kSetUpTime), setup.gives_way));
    } catch (const std::bad_alloc&) {  // the client's sockets are closed by now
      setup.done = true;
    }
  });
  if (thread.is_ok()) {
    setup.thread = std::move(*thread);
    return;
  }
  log(LogLevel::kWarning, "a connection was not made: ", thread.status().to_string());
  shared->leave(Status(Code::kExhausted, "set up link", "no thread for one more client: try again"));
  running_.pop_back();
}

void Entrance::finish(SetUp& setup, Result<LinkParts> parts) {
  std::optional<ConnId> conn;
  if (parts.is_ok()) conn = parts_.admit(std::move(*parts));
  const MutexLock lock(mutex_);
  if (conn || is_shortage(parts.status())) trouble_ = conn ? Status::ok() : parts.status();
  if (conn && !admits_) ready_.push_back(*conn);
  if (!conn && !stopped_) crowd_log_.warn(Clock::steady().now(), "a connection was not made: ", parts.status().to_string());
  setup.done = true;
  changed_.notify_all();
}

void Entrance::reap(bool all) {
  for (auto setup = running_.begin(); setup != running_.end();) {
    if (!all && !setup->done) {
      ++setup;
      continue;
    }
    setup->thread.join();
    setup = running_.erase(setup);
  }
}

// Makes silent clients give up their places, first those of the address that has the most, the longest silent first. A place becomes
// free when its set-up has seen the flag.
void Entrance::make_room(const std::string& newcomer, size_t places) {
  CrowdedAddresses crowds;
  for (const SetUp& setup : running_) crowds.add(setup.address);
  std::vector<std::pair<TimePoint, SetUp*>> silent;
  size_t going = 0;
  const TimePoint now = Clock::steady().now();
  for (SetUp& setup : running_) {
    const TimePoint heard_at = setup.watch.heard_at;
    const bool crowds_in = crowds.has_more_than_its_share(setup.address, newcomer, places);
    if (setup.gives_way) {
      ++going;
    } else if (now - heard_at >= std::max(crowds_in ? kSilenceInACrowd : kClientSilence, setup.distance)) {
      silent.emplace_back(heard_at, &setup);
    }
  }
  std::sort(silent.begin(), silent.end(), [&](const auto& a, const auto& b) {
    return crowds.goes_before(a.second->address, a.first, b.second->address, b.first);
  });
  for (size_t i = 0; i < silent.size() && going < kGoAtOnce; ++i, ++going) {
    silent[i].second->gives_way = true;
    silent[i].second->watch.stop = true;
  }
}

}  // namespace tcpx
