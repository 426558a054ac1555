#include "transfer/bootstrap.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "base/connect_first.h"
#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "secure/settings.h"
#include "transfer/crowded_addresses.h"
#include "wire/set_up_messages.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;

constexpr int kBacklog = 4096;  // net.core.somaxconn may be less
// A client that has been silent for this long may have to make room. A client that has just connected says hello sooner.
constexpr Duration kSilence = milliseconds(100);
// A client whose first frames take this long may have to make room, too: a byte now and then does not count as talking.
constexpr Duration kSlowFrame = std::chrono::seconds(1);
// Longest time for which clients make room without a look at what the others have said: much less than kSilence. Where it takes longer to
// take a connection than a crowd needs to come again, there would be no end of it, and good clients would seem silent.
constexpr Duration kMakesRoom = milliseconds(20);
// Waiting clients take at most an eighth of the descriptors, so that some are left for clients that talk.
constexpr size_t kDescriptorsPerWaiting = 8;
// Time that the server ignores the backlog when it has no descriptor for a connection in it.
constexpr Duration kStarvedPause = milliseconds(50);
constexpr Duration kFirstRetryPause = milliseconds(10);
constexpr Duration kLongestRetryPause = milliseconds(200);

// Errors of accept(2) that concern the connection being taken, not the listener.
bool is_lost_connection(int error_number) {
  switch (error_number) {
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EPERM:
      return true;
    default:
      return false;
  }
}

// True when the client may try again: the server reported that it had no room, or the connection was reset because the server
// went away and may come back. A shortage at this end is no such case, and is reported at once.
bool was_turned_away(const Status& status) {
  const int error = status.domain() == Domain::kErrno ? status.native() : 0;
  const bool reset = error == ECONNRESET || error == ENOTCONN || error == EPIPE;
  return (status.code() == Code::kExhausted && !is_shortage(status)) || (status.code() == Code::kPeerGone && reset);
}

Status give_up(const Status& last) {
  return Status(Code::kTimeout, last.operation(), concat("no answer until the deadline, last: ", last.detail()), last.domain(),
                last.native());
}

// Sleeps. @return kTimeout when the deadline passes, or kCancelled when `stop` is set, before the pause is over
Status pause_for(Duration pause, Deadline deadline, const std::atomic<bool>* stop, const Status& last) {
  const Deadline end = Deadline::after(pause).earlier(deadline);
  do {
    if (stop != nullptr && stop->load()) return Status(Code::kCancelled, last.operation(), "interrupted");
    std::this_thread::sleep_until(end.earlier(Deadline::after(kLookAtStop)).at());
  } while (!end.expired());
  return deadline.expired() ? give_up(last) : Status::ok();
}

using FirstWords = std::function<Status(BootstrapChannel&)>;

// First byte of a frame.
constexpr std::byte kFrame = std::bit_cast<std::array<std::byte, sizeof kFrameMagic>>(kFrameMagic)[0];

// Looks at the first byte that has come, and leaves it there. @return nullopt: none has; kPeerGone
Result<std::optional<std::byte>> first_byte(int fd) {
  std::byte byte;
  ssize_t n = 0;
  do n = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n == 1) return std::optional(byte);
  if (n == 0) return Status(Code::kPeerGone, "bootstrap hello", "connection closed by the peer");
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<std::byte>();
  return system_error("bootstrap hello", errno);
}

Status one_is_in_clear(const char* has, const char* has_not) {
  return Status(Code::kUnsupported, "bootstrap", one_sided(has, has_not));
}

// Reads why a server that answers in clear does not serve a client that waits for TLS.
Status read_refusal(int fd, Deadline deadline, const std::atomic<bool>* stop) {
  FrameAssembler assembler;
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const bool whole, read_frame_part(fd, assembler));
    if (whole) break;
    if (assembler.ends_set_up()) return Status(Code::kProtocol, "bootstrap", "the server does not answer with TLS");
    TCPX_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline, stop));
  }
  const Frame frame = assembler.take();
  if (frame.type != FrameType::kFinish) return one_is_in_clear("client", "server");
  Status reported;
  TCPX_RETURN_IF_ERROR(decode_finish(frame, reported));
  return reported.is_ok() ? one_is_in_clear("client", "server") : reported;
}

Result<std::unique_ptr<TlsSession>> secure(int fd, const TlsContext& tls, Deadline deadline, const std::atomic<bool>* stop) {
  TCPX_ASSIGN_OR_RETURN(auto session, tls.session(fd, TlsRole::kClient));
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const auto step, session->handshake());
    if (step == TlsSession::Step::kDone) return session;
    if (step == TlsSession::Step::kInClear) return read_refusal(fd, deadline, stop);
    TCPX_RETURN_IF_ERROR(wait_for(fd, step == TlsSession::Step::kWantsToRead ? POLLIN : POLLOUT, deadline, stop));
  }
}

// Exchanges hellos on a new connection, with a secret after TLS's handshake. @param own set to the error of `first_words` when that
// is the reason for the failure
Result<BootstrapChannel> exchange_hello(UniqueFd socket, Deadline deadline, const std::atomic<bool>* stop,
                                        const FirstWords& first_words, const TlsContext* tls, Status& own) {
  TCPX_ASSIGN_OR_RETURN(const auto peer, peer_address(socket.get()));
  TCPX_RETURN_IF_ERROR(send_without_delay(socket.get()));
  std::unique_ptr<TlsSession> session;
  if (tls != nullptr) {
    auto secured = secure(socket.get(), *tls, deadline, stop);
    if (!secured.is_ok()) {
      const Status& why = secured.status();
      return Status(why.code(), concat("bootstrap with ", peer.to_string()), why.detail(), why.domain(), why.native());
    }
    session = std::move(*secured);
  }
  BootstrapChannel channel(std::move(socket), peer, "", stop, std::nullopt, std::move(session));
  // When sending fails, the server may have sent its answer before it closed, so errors of sending are not returned here.
  if (channel.say_hello(deadline).is_ok() && first_words) {
    Status said = first_words(channel);
    if (!said.is_ok() && channel.peer_status().is_ok()) {
      channel.leave(said);
      own = said;
      return said;
    }
  }
  TCPX_RETURN_IF_ERROR(channel.hear_hello(deadline));
  return channel;
}

}  // namespace

size_t bounded_by_descriptors(size_t most, size_t of_each) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
  return std::clamp<size_t>(limit.rlim_cur / of_each, 1, most);
}

Result<BootstrapChannel> bootstrap_connect(const std::string& host, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop, const FirstWords& first_words, const TlsContext* tls) {
  TCPX_ASSIGN_OR_RETURN(const auto addresses, resolve(host, port, deadline, stop));
  Duration pause = kFirstRetryPause;
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(auto socket, connect_first(addresses, WhenRefused::kTryAgain, deadline, stop));
    Status own;
    auto channel = exchange_hello(std::move(socket), deadline, stop, first_words, tls, own);
    if (channel.is_ok() || !own.is_ok() || !was_turned_away(channel.status())) return channel;
    TCPX_RETURN_IF_ERROR(pause_for(pause, deadline, stop, channel.status()));
    pause = std::min(pause * 2, kLongestRetryPause);
  }
}

Result<std::unique_ptr<BootstrapServer>> BootstrapServer::create(const BootstrapServerOptions& options) {
  SocketAddress wanted = SocketAddress::any(AF_INET6, options.port);
  if (!options.host.empty()) {
    TCPX_ASSIGN_OR_RETURN(const auto addresses, resolve(options.host, options.port));
    wanted = addresses.front();
  }
  auto listener = listen_tcp(wanted, kBacklog);
  const bool no_ipv6 =
      !listener.is_ok() && (listener.status().native() == EAFNOSUPPORT || listener.status().native() == EADDRNOTAVAIL);
  if (no_ipv6 && options.host.empty()) listener = listen_tcp(SocketAddress::any(AF_INET, options.port), kBacklog);
  if (!listener.is_ok()) return listener.status();
  TCPX_ASSIGN_OR_RETURN(const auto address, local_address(listener->get()));
  return std::unique_ptr<BootstrapServer>(new BootstrapServer(std::move(*listener), address, options));
}

BootstrapServer::BootstrapServer(UniqueFd listener, const SocketAddress& address, const BootstrapServerOptions& options)
    : listener_(std::move(listener)), address_(address), options_(options) {
  options_.max_waiting = bounded_by_descriptors(options.max_waiting, kDescriptorsPerWaiting);
}

Result<BootstrapChannel> BootstrapServer::accept(Deadline deadline) {
  for (;;) {
    for (size_t i = 0; i < waiting_.size();) {
      // Read before checking the deadline: a client that spoke in time is served even when this end is late to read.
      const Result<bool> ready = advance(waiting_[i]);
      if (ready.is_ok() && !*ready && !waiting_[i].deadline.expired()) {
        ++i;
        continue;
      }
      Waiting client = std::move(waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      starved_ = false;
      shortage_ = Status::ok();
      if (ready.is_ok() && *ready) {
        log(LogLevel::kInfo, "bootstrap: serving ", client.peer.to_string(), ", build ", *client.build);
        return channel_of(std::move(client));
      }
      drop(client, !ready.is_ok() ? ready.status()
                                  : Status(Code::kTimeout, client.build ? "bootstrap" : "bootstrap hello",
                                           concat("none until the deadline", client.build ? ", after its hello" : "")));
    }
    TCPX_ASSIGN_OR_RETURN(const bool taken, take_connections());
    if (taken) continue;
    if (options_.stop != nullptr && options_.stop->load()) return Status(Code::kCancelled, "bootstrap accept", "interrupted");
    if (deadline.expired() && !shortage_.is_ok()) return shortage_;
    if (deadline.expired())
      return Status(Code::kTimeout, "bootstrap accept", concat("no client on port ", port(), " until the deadline"));
    TCPX_RETURN_IF_ERROR(wait_for_event(deadline));
  }
}

// Looks how the client begins, and goes on with TLS's handshake. @return true: its frames can be read
Result<bool> BootstrapServer::secure(Waiting& client) {
  if (!client.first) {
    TCPX_ASSIGN_OR_RETURN(client.first, first_byte(client.socket.get()));
    if (!client.first) return false;
    client.heard_at = Clock::steady().now();
    TCPX_RETURN_IF_ERROR(send_without_delay(client.socket.get()));  // TLS's handshake may be more than OpenSSL sends at once
    const bool speaks_tls = *client.first == TlsSession::kHandshakeByte;
    if (speaks_tls && options_.tls == nullptr) return one_is_in_clear("client", "server");
    if (!speaks_tls && options_.tls != nullptr && *client.first == kFrame) return one_is_in_clear("server", "client");
    if (!speaks_tls && options_.tls != nullptr) return Status(Code::kProtocol, "bootstrap", "neither TLS nor a frame");
    if (speaks_tls) {
      TCPX_ASSIGN_OR_RETURN(client.tls, options_.tls->session(client.socket.get(), TlsRole::kServer));
    }
  }
  if (!client.tls || client.tls->is_established()) return true;
  TCPX_ASSIGN_OR_RETURN(const auto step, client.tls->handshake());
  client.awaited = step == TlsSession::Step::kWantsToWrite ? POLLOUT : POLLIN;
  return step == TlsSession::Step::kDone;
}

// Reads what the client has sent. @return true: the client is ready to be served
Result<bool> BootstrapServer::advance(Waiting& client) {
  TCPX_ASSIGN_OR_RETURN(const bool secured, secure(client));
  if (!secured) return false;
  for (;;) {
    const size_t before = client.frame.size();
    const Result<bool> whole = read_frame_part(client.socket.get(), client.frame, client.tls.get());
    if (client.frame.size() > before) client.heard_at = Clock::steady().now();
    if (client.frame.ends_set_up())
      return Status(Code::kProtocol, "bootstrap", concat("the client begins with a ", name_of(client.frame.type())));
    if (!whole.is_ok() || !*whole) return whole;
    if (client.build) break;
    TCPX_RETURN_IF_ERROR(greet(client));
    if (!options_.wait_for_first_frame) return true;
  }
  if (client.frame.type() == FrameType::kParameters) return true;
  if (client.frame.type() == FrameType::kFinish) {
    Status reported;
    TCPX_RETURN_IF_ERROR(decode_finish(client.frame.take(), reported));
    TCPX_RETURN_IF_ERROR(reported);
  }
  return Status(Code::kProtocol, "bootstrap", "the client does not begin with its parameters");
}

BootstrapChannel BootstrapServer::channel_of(Waiting client) const {
  std::optional<Frame> first;
  if (client.frame.whole()) first = client.frame.take();
  return {std::move(client.socket), client.peer,          std::move(*client.build), options_.stop,
          std::move(first),         std::move(client.tls)};
}

// The address to which a client has connected is known without a word of it.
Status BootstrapServer::check_place(int fd) const {
  if (!options_.only_at) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto here, local_address(fd));
  const std::vector<std::string>& served = *options_.only_at;
  if (here.is_loopback() || std::find(served.begin(), served.end(), here.host()) != served.end()) return Status::ok();
  return Status(Code::kUnsupported, "bootstrap",
                concat("no clients are taken at ", here.host(), ", the address of no data NIC: set ",
                       name_of_variables(Credential::kNone), " at both ends, or a listen address here"));
}

// Takes connections from the kernel's backlog while there is room. @return true: at least one was taken
Result<bool> BootstrapServer::take_connections() {
  bool taken = false;
  for (const Deadline turn = Deadline::after(kMakesRoom); !starved_;) {
    if (waiting_.size() >= options_.max_waiting) {
      const bool more = wait_for(listener_.get(), POLLIN, Deadline(TimePoint{})).is_ok();
      if (!more || turn.expired() || !make_room()) break;
    }
    UniqueFd socket = accept_tcp(listener_.get());
    if (!socket) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        shortage_ = Status::ok();
        break;
      }
      if (errno == EINTR || is_lost_connection(errno)) continue;
      Status why = system_error("bootstrap accept", errno);
      if (!is_shortage(why)) return why;
      starved_ = !make_room();
      if (!starved_) continue;
      log(LogLevel::kDebug, "bootstrap: clients wait: ", why.to_string());
      shortage_ = std::move(why);
      continue;
    }
    shortage_ = Status::ok();
    const auto peer = peer_address(socket.get());
    if (!peer.is_ok()) continue;  // the connection has been reset already
    const Status place = check_place(socket.get());
    waiting_.push_back({.socket = std::move(socket),
                        .peer = *peer,
                        .host = peer->host(),
                        .deadline = Deadline::after(options_.hello_time),
                        .came_at = Clock::steady().now(),
                        .heard_at = Clock::steady().now(),
                        .frame = {},
                        .build = {}});
    taken = true;
    if (place.is_ok()) continue;
    drop(waiting_.back(), place);
    waiting_.pop_back();
  }
  return taken;
}

// Drops a client that has been silent for kSilence, or has not completed its first frames within kSlowFrame. Of these it drops a
// client of the address with the most connections here, and among them the one that has been silent longest.
// @return false: there is no such client
bool BootstrapServer::make_room() {
  const TimePoint now = Clock::steady().now();
  CrowdedAddresses crowds;
  for (const Waiting& client : waiting_) crowds.add(client.host);
  const auto goes_before = [&](const Waiting& a, const Waiting& b) {
    return crowds.goes_before(a.host, a.heard_at, b.host, b.heard_at);
  };
  auto goes = waiting_.end();
  for (auto client = waiting_.begin(); client != waiting_.end(); ++client) {
    const bool may_go = now - client->heard_at >= kSilence || now - client->came_at >= kSlowFrame;
    if (may_go && (goes == waiting_.end() || goes_before(*client, *goes))) goes = client;
  }
  if (goes == waiting_.end()) return false;
  drop(*goes, Status(Code::kExhausted, "bootstrap", concat("more than ", waiting_.size(), " connections wait: try again")));
  waiting_.erase(goes);
  return true;
}

Status BootstrapServer::wait_for_event(Deadline deadline) {
  if (options_.stop != nullptr) deadline = deadline.earlier(Deadline::after(kLookAtStop));
  // When the server is full, polling the listener would return at once although nothing can be taken.
  const bool full = waiting_.size() >= options_.max_waiting;
  const bool listens = !full && !std::exchange(starved_, false);
  std::vector<pollfd> entries;
  if (listens) {
    entries.push_back({listener_.get(), POLLIN, 0});
  } else {
    deadline = deadline.earlier(Deadline::after(kStarvedPause));
  }
  for (const Waiting& client : waiting_) {
    entries.push_back({client.socket.get(), client.awaited, 0});
    deadline = deadline.earlier(client.deadline);
  }
  if (::poll(entries.data(), entries.size(), deadline.poll_ms()) < 0 && errno != EINTR) return system_error("poll", errno);
  return Status::ok();
}

Status BootstrapServer::greet(Waiting& client) {
  TCPX_ASSIGN_OR_RETURN(auto build, decode_hello(client.frame.take()));
  // The first bytes on a new socket always fit into its send buffer, so this does not wait.
  const auto hello = encode_frame(encode_hello(TCPX_VERSION));
  if (client.tls) TCPX_RETURN_IF_ERROR(client.tls->write(hello).status());
  if (!client.tls) TCPX_RETURN_IF_ERROR(send_all(client.socket.get(), hello, Deadline::after(kSilence)));
  client.build = std::move(build);
  client.deadline = Deadline::after(options_.hello_time);
  return Status::ok();
}

void BootstrapServer::drop(const Waiting& client, const Status& why) {
  // A connection that never sent anything is a port scan or a health check, and deserves no warning.
  const std::string line = concat("bootstrap: dropped ", client.peer.to_string(), ": ", why.to_string());
  client.first ? crowd_log_.warn(Clock::steady().now(), line) : log(LogLevel::kInfo, line);
  // A refusal by TLS has been sent already.
  if (why.code() != Code::kUnsupported && why.code() != Code::kExhausted && why.code() != Code::kMismatch) return;
  // The client is of this library, but has another version or setting, or found no room: tell it why. Its send buffer is empty, so
  // this does not wait. In the middle of a handshake it could not read that; it takes the end for a reset, and tries again.
  const auto answer = encode_frame(encode_finish(why));
  if (client.tls && client.tls->is_established()) {
    (void)client.tls->write(answer);
  } else if (!client.tls) {
    (void)::send(client.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Closing a socket with unread data would reset the connection, and the answer could be lost.
  (void)::shutdown(client.socket.get(), SHUT_WR);
  std::array<std::byte, 4096> unread;
  (void)::recv(client.socket.get(), unread.data(), unread.size(), MSG_DONTWAIT);
}

}  // namespace tcpx
