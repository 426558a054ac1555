#include "net/devmem/broker.h"

#include <fnmatch.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "base/log.h"
#include "base/own_thread.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unix_socket.h"
#include "net/devmem/broker_messages.h"
#include "net/devmem/led_listener.h"
#include "net/devmem/queue_binding.h"
#include "net/devmem/steering.h"

namespace tcpx::devmem {
namespace {

constexpr char kRefuse[] = "ask tcpx_devmemd";
constexpr int kBacklog = 64;
constexpr Duration kLookAtCloses = std::chrono::milliseconds(100);
constexpr size_t kMostGroups = 65536;  // NGROUPS_MAX
constexpr int kSoPeerGroups = 59;      // torvalds/linux: include/uapi/asm-generic/socket.h, since 4.13
constexpr uint64_t kDmabufUnit = 4096;

Status refusal_of(Code code, std::string why) {
  return Status(code, kRefuse, std::move(why));
}

bool is_allowed(const std::vector<std::string>& patterns, const std::string& interface) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           return ::fnmatch(pattern.c_str(), interface.c_str(), 0) == 0;
         });
}

/// False: it does not read, and what it is told is lost.
bool tell(int client, const Status& status, uint32_t id = 0, uint32_t queue = 0) {
  BrokerAnswer answer{.code = static_cast<int32_t>(status.code()), .error = status.native(), .id = id, .queue = queue};
  if (!status.is_ok()) {
    const std::string text = concat(status.operation(), ": ", status.detail());
    answer.text_bytes = static_cast<uint16_t>(text.copy(answer.text, sizeof answer.text));
  }
  return ::send(client, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof answer);
}

/// Says no to a client that is to have no place.
void turn_away(const ForeignFd& client, const Status& why) {
  (void)tell(client.get(), why);
  // What lies unread when the socket is closed would make the client's read fail before the answer.
  ::shutdown(client.get(), SHUT_RD);
  BrokerQuestion unread;
  for (auto read = receive_descriptor(client.get(), std::as_writable_bytes(std::span(&unread, 1)));
       read.is_ok() && read->bytes > 0;)
    read = receive_descriptor(client.get(), std::as_writable_bytes(std::span(&unread, 1)));
}

/// Listens at a path. What a broker that died has left there is taken over.
Result<ForeignFd> listen_at_path(const std::string& path, std::optional<gid_t> group) {
  if (path.empty() || path.front() != '/') return Status(Code::kInvalidArgument, "listen for clients", path + " is not a path");
  const std::string directory = path.substr(0, path.rfind('/'));
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST && !directory.empty())
    return system_error(concat("make ", directory), errno);
  auto listener = listen_unix(path, kBacklog, SOCK_SEQPACKET);
  if (!listener.is_ok() && listener.status().native() == EADDRINUSE) {
    const auto other = connect_unix(path, SOCK_SEQPACKET);
    if (other.status().code() != Code::kPeerGone)
      return Status(Code::kExhausted, "listen for clients", concat("another process listens at ", path));
    ::unlink(path.c_str());
    listener = listen_unix(path, kBacklog, SOCK_SEQPACKET);
  }
  if (!listener.is_ok()) return Status(listener.status().code(), concat("listen at ", path), listener.status().detail());
  // Until then only this user can connect, or whom the umask lets; may_ask decides in any case.
  if ((group && ::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) || ::chmod(path.c_str(), 0660) != 0) {
    const Status status = system_error(concat("let a group use ", path), errno);
    ::unlink(path.c_str());
    return status;
  }
  return listener;
}

void undo_left(const BrokerConfig& config, EthtoolCalls& ethtool) {
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> all(::if_nameindex(), &::if_freenameindex);
  for (const auto* each = all.get(); each != nullptr && each->if_index != 0; ++each) {
    if (!is_allowed(config.interfaces, each->if_name)) continue;
    auto steering = Steering::open(ethtool, each->if_name, config.records);
    const Status status = steering.is_ok() ? steering->undo_all_left() : steering.status();
    if (!status.is_ok() && status.code() != Code::kNotFound) log(LogLevel::kWarning, "net/devmem: ", status.to_string());
  }
}

}  // namespace

Result<PeerCredentials> PeerCredentials::of(int socket) {
  ucred facts{};
  socklen_t length = sizeof facts;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &facts, &length) != 0) return system_error("ask who the peer is", errno);
  std::vector<gid_t> groups(kMostGroups);
  length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, kSoPeerGroups, groups.data(), &length) != 0) length = 0;
  groups.resize(length / sizeof(gid_t));
  groups.insert(groups.begin(), facts.gid);
  return PeerCredentials{.pid = facts.pid, .uid = facts.uid, .groups = std::move(groups)};
}

bool may_ask(const PeerCredentials& peer, uid_t own, std::optional<gid_t> group) {
  return peer.uid == 0 || peer.uid == own ||
         (group && std::find(peer.groups.begin(), peer.groups.end(), *group) != peer.groups.end());
}

Broker::Kernel Broker::Kernel::real() {
  return {EthtoolCalls::real(), [] { return Netdev::open(); }};
}

/// A connection, all of it of its thread but what is said otherwise. Its rules end before its binding.
struct Broker::Client {
  struct Rule {
    UserShares::Share share;
    SteeringChange change;
  };

  Client(ForeignFd socket, const PeerCredentials& peer, UserShares::Share share)
      : fd(std::move(socket)), user(peer.uid), name(name_of(peer)), place(std::move(share)) {}
  ~Client() {
    if (thread.joinable()) thread.join();
  }
  static std::string name_of(const PeerCredentials& peer) { return concat("process ", peer.pid, " of user ", peer.uid); }

  void end() {
    rules.clear();
    if (bound) log(LogLevel::kInfo, name, " gives back queue ", bound->queue, " of ", interface);
    bound.reset();
    place.reset();
  }
  Status bind(const BrokerQuestion& question, int dmabuf, const BrokerConfig& config, const Kernel& kernel);
  Status lead(int listener, UserShares& shares, const BrokerConfig& config, const Kernel& kernel);

  ForeignFd fd;
  const uid_t user;
  const std::string name;
  const TimePoint since = Clock::steady().now();
  std::optional<UserShares::Share> place;
  std::string interface;
  std::optional<BoundQueue> bound;
  std::map<uint32_t, Rule> rules;
  uint32_t last_rule = 0;
  std::atomic<bool> has_ended = false;  // any thread
  std::thread thread;                   // of the thread that listens
};

Status Broker::Client::bind(const BrokerQuestion& question, int dmabuf, const BrokerConfig& config, const Kernel& kernel) {
  if (bound) return refusal_of(Code::kInvalidArgument, "a connection is for one binding");
  const std::string wanted(question.interface, ::strnlen(question.interface, sizeof question.interface));
  if (wanted.empty() || wanted.size() == sizeof question.interface ||
      std::any_of(wanted.begin(), wanted.end(), [](char c) { return c <= ' ' || c > '~'; }))
    return refusal_of(Code::kInvalidArgument, "this is no interface's name");
  if (!is_allowed(config.interfaces, wanted)) return refusal_of(Code::kUnsupported, concat("--interface leaves out ", wanted));
  if (question.bytes == 0 || question.bytes > kMostBoundBytes || question.bytes % kDmabufUnit != 0)
    return refusal_of(Code::kInvalidArgument, concat(question.bytes, " bytes, not whole pages up to ", kMostBoundBytes));
  TCPX_ASSIGN_OR_RETURN(Netdev netdev, kernel.netdev());
  TCPX_ASSIGN_OR_RETURN(auto made, BoundQueue::bind(kernel.ethtool, std::move(netdev), wanted, dmabuf, config.records));
  // Now that the kernel has taken it for a dma-buf, asking it cannot block as a file of FUSE can.
  if (const off_t size = ::lseek(dmabuf, 0, SEEK_END); size < 0 || static_cast<uint64_t>(size) != question.bytes)
    return refusal_of(Code::kInvalidArgument, concat("the dma-buf has ", size, " bytes, not ", question.bytes));
  interface = wanted;
  bound = std::move(made);
  log(LogLevel::kInfo, name, " receives by queue ", bound->queue, " of ", interface, " into ", question.bytes, " bytes");
  return Status::ok();
}

Status Broker::Client::lead(int listener, UserShares& shares, const BrokerConfig& config, const Kernel& kernel) {
  if (!bound) return refusal_of(Code::kInvalidArgument, "there is no binding to lead packets to");
  if (rules.size() >= config.rules_of_client)
    return refusal_of(Code::kExhausted, concat("a client has at most ", config.rules_of_client, " rules"));
  TCPX_ASSIGN_OR_RETURN(UserShares::Share share, shares.take(user));
  TCPX_ASSIGN_OR_RETURN(const SocketAddress local, address_of_listener(listener, interface));
  TCPX_ASSIGN_OR_RETURN(Steering steering, Steering::open(kernel.ethtool, interface, config.records));
  TCPX_ASSIGN_OR_RETURN(SteeringChange change, steering.lead(local, bound->queue));
  rules.emplace(++last_rule, Rule{std::move(share), std::move(change)});
  log(LogLevel::kInfo, name, " has ", local.to_string(), " led to queue ", bound->queue, " of ", interface);
  return Status::ok();
}

Result<std::unique_ptr<Broker>> Broker::start(BrokerConfig config, Kernel kernel) {
  TCPX_ASSIGN_OR_RETURN(ForeignFd listener, listen_at_path(config.socket, config.group));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake) return system_error("make event counter", errno);
  undo_left(config, kernel.ethtool);
  std::unique_ptr<Broker> broker(new Broker(std::move(config), std::move(kernel), std::move(listener), std::move(wake)));
  TCPX_ASSIGN_OR_RETURN(broker->thread_, start_thread("tcpx-broker", [raw = broker.get()] { raw->run(); }));
  return broker;
}

Broker::Broker(BrokerConfig config, Kernel kernel, ForeignFd listener, UniqueFd wake)
    : config_(std::move(config)),
      kernel_(std::move(kernel)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      places_("connections", config_.clients, config_.clients_of_user),
      rules_("rules", config_.rules, config_.rules_of_user) {}

Broker::~Broker() {
  stop();
  if (thread_.joinable()) thread_.join();
  ::unlink(config_.socket.c_str());
}

void Broker::stop() {
  stops_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // nobody reads it: all threads wake
}

void Broker::run() {
  bool is_short = false;  // of descriptors, and somebody waits to be taken
  while (!stops_) {
    // What is not read passes no descriptor on to the threads that hang in closing others.
    const bool reads = !foreign_closes_hang();
    pollfd waits[] = {{wake_.get(), POLLIN, 0}, {listener_.get(), static_cast<short>(reads && !is_short ? POLLIN : 0), 0}};
    const Deadline until = Deadline::after(reads && !is_short ? Duration::max() : kLookAtCloses);
    if (::poll(waits, std::size(waits), until.poll_ms()) < 0 && errno != EINTR) {
      log(LogLevel::kError, "net/devmem: ", system_error("poll", errno).to_string());
      break;
    }
    std::erase_if(clients_, [](const auto& client) { return client->has_ended.load(); });
    is_short = (waits[1].revents & POLLIN) != 0 && !take_client();
  }
  stop();
  clients_.clear();
}

bool Broker::take_client() {
  ForeignFd fd = accept_unix(listener_.get());
  if (!fd) return errno != EMFILE && errno != ENFILE;
  const auto peer = PeerCredentials::of(fd.get());
  if (!peer.is_ok()) return true;
  Status why;
  if (!may_ask(*peer, ::geteuid(), config_.group)) {
    why = refusal_of(Code::kSystem, concat("user ", peer->uid, " is not in the group that may ask (--group)"));
  } else if (auto place = places_.take(peer->uid); !place.is_ok()) {
    why = place.status();
  } else {
    auto client = std::make_unique<Client>(std::move(fd), *peer, *std::move(place));
    auto thread = start_thread("tcpx-client", [this, raw = client.get()] { attend(*raw); });
    if (thread.is_ok()) {
      client->thread = *std::move(thread);
      clients_.push_back(std::move(client));
      return true;
    }
    why = thread.status();
    fd = std::move(client->fd);
  }
  log(LogLevel::kWarning, Client::name_of(*peer), " is turned away: ", why.detail());
  turn_away(fd, why);
  return true;
}

void Broker::attend(Client& client) {
  for (;;) {
    const bool reads = !foreign_closes_hang();
    pollfd waits[] = {{wake_.get(), POLLIN, 0}, {client.fd.get(), static_cast<short>(reads ? POLLIN : 0), 0}};
    Deadline until = Deadline::after(reads ? Duration::max() : kLookAtCloses);
    if (!client.bound) until = until.earlier(Deadline(client.since + config_.patience));
    if (::poll(waits, std::size(waits), until.poll_ms()) < 0 && errno != EINTR) {
      log(LogLevel::kError, "net/devmem: ", system_error("poll", errno).to_string());
      break;
    }
    if (stops_) break;
    const bool is_overdue = Clock::steady().now() - client.since > config_.patience;
    const short events = waits[1].revents;
    const bool stays = (events & POLLIN) != 0 ? serve(client) : (events & (POLLHUP | POLLERR)) == 0;
    if (!stays || (is_overdue && !client.bound)) break;
  }
  client.end();
  client.fd.reset();
  client.has_ended = true;
}

bool Broker::serve(Client& client) {
  std::byte room[sizeof(BrokerQuestion) + 1];  // more than a question is none
  auto read = receive_descriptor(client.fd.get(), room);
  if (!read.is_ok()) return false;
  if (read->bytes == 0) return true;
  BrokerQuestion question;
  std::memcpy(&question, room, sizeof question);
  if (read->bytes != sizeof question || question.magic != kBrokerMagic || question.version != kBrokerVersion) {
    (void)tell(client.fd.get(), refusal_of(Code::kProtocol, concat("this is no question of version ", kBrokerVersion)));
    return false;
  }
  const auto needs = [&](const char* what) {
    if (read->descriptor) return Status::ok();
    return read->lost ? refusal_of(Code::kExhausted, "the broker has too many files open")
                      : refusal_of(Code::kInvalidArgument, concat("the question comes without ", what));
  };
  Status status;
  switch (question.kind) {
    case BrokerQuestionKind::kBind:
      status = needs("a dma-buf");
      if (status.is_ok()) status = client.bind(question, read->descriptor.get(), config_, kernel_);
      break;
    case BrokerQuestionKind::kLead:
      status = needs("a listening socket");
      if (status.is_ok()) status = client.lead(read->descriptor.get(), rules_, config_, kernel_);
      break;
    case BrokerQuestionKind::kUnlead:
      if (client.rules.erase(question.rule) == 0)
        status = refusal_of(Code::kNotFound, concat("there is no rule ", question.rule));
      break;
    case BrokerQuestionKind::kUnbind:
      client.end();
      (void)tell(client.fd.get(), status);
      return false;
    default:
      status = refusal_of(Code::kUnsupported, "this is another kind of question");
  }
  if (!status.is_ok()) log(LogLevel::kInfo, client.name, " is refused: ", status.to_string());
  const bool binds = question.kind == BrokerQuestionKind::kBind;
  const uint32_t id = !status.is_ok() ? 0 : binds ? client.bound->dmabuf_id : client.last_rule;
  return tell(client.fd.get(), status, id, client.bound ? client.bound->queue : 0);
}

}  // namespace tcpx::devmem
