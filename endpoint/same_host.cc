#include "endpoint/same_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <fstream>
#include <span>
#include <utility>

#include "base/random.h"
#include "base/read_process.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unix_socket.h"
#include "endpoint/why_unread.h"

namespace tcpx {
namespace {

constexpr const char* kMeet = "meet on one host";
constexpr const char* kYes = "yes";
constexpr const char* kNameBegins = "tcpx-";
// Room for strangers in line before the peer: everybody sees the name in /proc/net/unix, but they do not know the key.
constexpr int kBacklog = 8;

// A meeting takes seconds at most. A file that is older belongs to an end that was killed in the middle of one.
constexpr time_t kStaleSeconds = 600;
constexpr int kMostEntries = 1024;  // that are looked at: others may write there, too

constexpr std::byte kFilesMark{1};

using Key = std::array<std::byte, 16>;

/// Message of each end over the Unix socket, the connector's first. The acceptor's carries the shared memory.
struct Greeting {
  Key key;
  uint64_t probe_at;
  Key probe;
};
static_assert(sizeof(Greeting) == 40);

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

Status refuse(std::string why) {
  return Status(Code::kUnsupported, kMeet, std::move(why));
}

// @return a pidfd, readable once the process has ended
UniqueFd open_process(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

// Removes what killed ends have left in the directory.
void remove_stale(int directory) {
  const int fd = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = fd < 0 ? nullptr : ::fdopendir(fd);
  if (entries == nullptr) {
    if (fd >= 0) ::close(fd);
    return;
  }
  const dirent* entry = nullptr;
  for (int i = 0; i < kMostEntries && (entry = ::readdir(entries)) != nullptr; ++i) {
    struct stat facts {};
    if (!std::string_view(entry->d_name).starts_with(kNameBegins) ||
        ::fstatat(directory, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (S_ISSOCK(facts.st_mode) && facts.st_uid == ::geteuid() && facts.st_mtime < ::time(nullptr) - kStaleSeconds)
      ::unlinkat(directory, entry->d_name, 0);
  }
  ::closedir(entries);
}

// One end of the meeting.
class Meeting {
 public:
  Meeting(BootstrapChannel& channel, const MeetingTerms& terms, Deadline deadline)
      : channel_(channel), terms_(terms), connector_(terms.connector), may_read_(terms.reads), deadline_(deadline) {}
  ~Meeting() { stop_listening(); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  Result<HostMeeting> run() {
    using Step = Status (Meeting::*)();
    const Step acceptor[] = {&Meeting::listen, nullptr, &Meeting::let_in, nullptr};
    const Step connector[] = {nullptr, &Meeting::connect, nullptr, &Meeting::share};
    for (const Step step : connector_ ? connector : acceptor) {
      const Status status = step == nullptr ? Status::ok() : (this->*step)();
      // Fail and let the peer try again: a shortage passes, but the slow way would stay as long as the connection.
      if (is_shortage(status)) return status;
      TCPX_ASSIGN_OR_RETURN(const bool worked, agree(status));
      if (!worked) return HostMeeting{.peer = nullptr, .local = concat("TCP on one host: ", why_not_)};
    }
    peer_->is_read = peer_reads_ == kYes;
    HostMeeting met{.peer = nullptr, .local = describe()};
    met.peer = std::move(peer_);
    return met;
  }

 private:
  Result<bool> agree(const Status& mine);
  Status open_directory();
  Status cannot_use_directory(const char* what, int error) const;
  std::string address_of(const std::string& name) const;
  void stop_listening();
  Status listen();
  Status connect();
  Status let_in();
  Status share();
  Result<PeerProcess> check_user(int socket) const;
  Status take(ForeignFd socket, const PeerProcess& process);
  Status take_area(int memory);
  Result<Greeting> greeting(const Key& key);
  void try_reading(const Greeting& theirs);
  std::string describe() const;

  BootstrapChannel& channel_;
  const MeetingTerms& terms_;
  const bool connector_, may_read_;
  const Deadline deadline_;
  Parameters said_{{"user namespace", user_namespace()}};  // what this end tells in its next frame
  int pidfd_error_ = 0;
  std::string listens_at_, name_, key_text_, peer_reads_, why_not_, their_user_namespace_;
  std::string reads_ = "nothing to read there";  // kYes, or why not
  Key key_{};
  UniqueFd directory_;  // where both meet; empty if they meet in their network namespace
  ForeignFd listener_;
  std::unique_ptr<Key> probe_ = std::make_unique<Key>();  // stays at its address until the peer has looked
  std::unique_ptr<HostPeer> peer_ = std::make_unique<HostPeer>();
};

// Both ends call it after each step. @return true when the step has worked at both
Result<bool> Meeting::agree(const Status& mine) {
  Parameters parameters = std::move(said_);
  said_.clear();
  std::string here;
  if (!mine.is_ok()) here = mine.operation() == kMeet ? mine.detail() : concat(mine.operation(), ": ", mine.detail());
  parameters["why not"] = here.substr(0, kMaxParameterBytes);
  TCPX_ASSIGN_OR_RETURN(auto theirs, channel_.exchange_parameters(parameters, {}, deadline_));
  for (auto& [name, value] : theirs) value = printable(std::as_bytes(std::span(value)), kMaxParameterBytes);
  const std::string& there = theirs["why not"];
  if (auto found = theirs.find("name"); found != theirs.end()) name_ = found->second;
  if (auto found = theirs.find("key"); found != theirs.end()) key_text_ = found->second;
  if (auto found = theirs.find("user namespace"); found != theirs.end()) their_user_namespace_ = found->second;
  if (auto found = theirs.find("reads"); found != theirs.end()) peer_reads_ = found->second;
  why_not_ = !here.empty() || there.empty() ? here : concat("the peer says: ", there);
  return why_not_.empty();
}

Status Meeting::open_directory() {
  if (!terms_.apart) return Status::ok();
  const char* const path = terms_.directory.c_str();
  (void)::mkdir(path, 0700);
  directory_ = UniqueFd(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (directory_) return Status::ok();
  const int error = errno;
  const Status why = system_error("open directory", error);
  return is_shortage(why) ? why : cannot_use_directory("it cannot be opened", error);
}

Status Meeting::cannot_use_directory(const char* what, int error) const {
  return refuse(concat("the network namespaces differ, and they cannot meet in ", terms_.directory, ": ", what, " (",
                       std::strerror(error), "). Mount one directory in both, and name it in UCCL_TCPX_LOCAL_DIR"));
}

// By way of the descriptor, because the address of a Unix socket has room for short paths only.
std::string Meeting::address_of(const std::string& name) const {
  return directory_ ? concat("/proc/self/fd/", directory_.get(), '/', name) : name;
}

void Meeting::stop_listening() {
  if (listener_ && directory_) ::unlinkat(directory_.get(), listens_at_.c_str(), 0);
  listener_.reset();
}

Status Meeting::listen() {
  if (foreign_closes_hang()) return refuse("descriptors that others have passed to this process wait to be closed");
  Key name;
  TCPX_RETURN_IF_ERROR(fill_random(name));
  TCPX_RETURN_IF_ERROR(fill_random(key_));
  TCPX_RETURN_IF_ERROR(open_directory());
  if (directory_) remove_stale(directory_.get());
  listens_at_ = concat(kNameBegins, hex_of(name));
  said_["name"] = listens_at_;
  said_["key"] = hex_of(key_);
  auto listener = listen_unix(address_of(listens_at_), kBacklog);
  if (!listener.is_ok() && directory_ && !is_shortage(listener.status()))
    return cannot_use_directory("nobody can listen there", listener.status().native());
  TCPX_RETURN_IF_ERROR(listener.status());
  listener_ = std::move(*listener);
  return Status::ok();
}

Result<Greeting> Meeting::greeting(const Key& key) {
  TCPX_RETURN_IF_ERROR(fill_random(*probe_));
  return Greeting{.key = key, .probe_at = reinterpret_cast<uintptr_t>(probe_.get()), .probe = *probe_};
}

// Call before using anything that came over the socket.
Result<PeerProcess> Meeting::check_user(int socket) const {
  TCPX_ASSIGN_OR_RETURN(const PeerProcess process, peer_process(socket));
  if (process.uid == ::geteuid()) return process;
  return refuse(concat("the peer is user ", process.uid, ", not ", ::geteuid(),
                       are_apart(user_namespace(), their_user_namespace_)
                           ? ", as this user namespace knows it: run both in one user namespace"
                           : ": run both as one user"));
}

// Keeps the socket to the peer, and notes which process that is. @param process from `check_user`
Status Meeting::take(ForeignFd socket, const PeerProcess& process) {
  peer_->socket = std::move(socket);
  peer_->pid = process.pid;
  peer_->same_process = process.pid == ::getpid();
  if (peer_->same_process) return Status::ok();
  auto told = peer_pidfd(peer_->socket.get());
  if (told.is_ok()) {
    peer_->process = std::move(*told);
    return Status::ok();
  }
  if (is_shortage(told.status())) return told.status();
  if (process.pid == 0) return Status::ok();
  peer_->process = open_process(process.pid);
  if (peer_->process) return Status::ok();
  // Without a pidfd, a later process with the same pid could be taken for the peer.
  pidfd_error_ = errno;
  const Status why = system_error("open the other process", pidfd_error_);
  return is_shortage(why) ? why : Status::ok();
}

Status Meeting::take_area(int memory) {
  TCPX_ASSIGN_OR_RETURN(peer_->area, SharedArea::map(memory, connector_));
  return Status::ok();
}

Status Meeting::connect() {
  Key key{};
  if (key_text_.size() != 2 * key.size()) return refuse("the peer names no socket");
  for (size_t i = 0; i < key.size(); ++i) {
    unsigned byte = 0;
    const char* const at = key_text_.data() + 2 * i;
    if (std::from_chars(at, at + 2, byte, 16).ptr != at + 2) return refuse("the peer names no socket");
    key[i] = static_cast<std::byte>(byte);
  }
  if (!name_.starts_with(kNameBegins) || name_.find('/') != std::string::npos)
    return refuse("the peer names no socket of its own");
  TCPX_RETURN_IF_ERROR(open_directory());
  auto socket = connect_unix(address_of(name_));
  if (!socket.is_ok() && socket.status().code() == Code::kPeerGone) {
    return refuse(directory_ ? concat("the network namespaces differ, and ", terms_.directory,
                                      " is not the peer's: mount one directory in both, and name it in UCCL_TCPX_LOCAL_DIR")
                             : "the peer's Unix socket cannot be reached: run both in one network namespace");
  }
  TCPX_RETURN_IF_ERROR(socket.status());
  TCPX_ASSIGN_OR_RETURN(const PeerProcess process, check_user(socket->get()));
  TCPX_RETURN_IF_ERROR(take(std::move(*socket), process));
  TCPX_ASSIGN_OR_RETURN(const Greeting mine, greeting(key));
  if (::send(peer_->socket.get(), &mine, sizeof mine, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof mine))
    return system_error("write to Unix socket", errno);
  return Status::ok();
}

// Takes the first in line that knows the key, and closes the others' sockets. Bytes of another user are not even read.
Status Meeting::let_in() {
  Greeting theirs{};
  Status nobody = refuse("the peer has not come to the Unix socket");
  while (!peer_->socket) {
    ForeignFd socket = accept_unix(listener_.get());
    if (!socket) {
      const Status why = system_error("accept Unix socket", errno);
      return is_shortage(why) ? why : nobody;
    }
    const Result<PeerProcess> process = check_user(socket.get());
    if (!process.is_ok()) {
      nobody = process.status();
      continue;
    }
    const auto room = std::as_writable_bytes(std::span(&theirs, 1));
    const auto received = receive_descriptor(socket.get(), room);
    if (!received.is_ok() || received->bytes != room.size() || theirs.key != key_) continue;
    TCPX_RETURN_IF_ERROR(take(std::move(socket), *process));
  }
  stop_listening();
  TCPX_ASSIGN_OR_RETURN(const UniqueFd memory, SharedArea::make());
  TCPX_RETURN_IF_ERROR(take_area(memory.get()));
  TCPX_ASSIGN_OR_RETURN(const Greeting mine, greeting(key_));
  TCPX_RETURN_IF_ERROR(send_descriptor(peer_->socket.get(), std::as_bytes(std::span(&mine, 1)), memory.get()));
  TCPX_ASSIGN_OR_RETURN(auto files, make_unix_pair());
  TCPX_RETURN_IF_ERROR(send_descriptor(peer_->socket.get(), std::as_bytes(std::span(&kFilesMark, 1)), files.b.get()));
  peer_->files = std::move(files.a);
  try_reading(theirs);
  return Status::ok();
}

Status Meeting::share() {
  Greeting theirs{};
  const auto room = std::as_writable_bytes(std::span(&theirs, 1));
  TCPX_ASSIGN_OR_RETURN(const auto received, receive_descriptor(peer_->socket.get(), room));
  if (received.lost) return system_error("take shared memory", EMFILE);
  if (received.bytes != room.size() || !received.descriptor) return refuse("the peer has shared no memory");
  TCPX_RETURN_IF_ERROR(take_area(received.descriptor.get()));
  std::byte mark{};
  TCPX_ASSIGN_OR_RETURN(auto files, receive_descriptor(peer_->socket.get(), std::span(&mark, 1)));
  if (files.lost) return system_error("take Unix socket", EMFILE);
  if (!files.descriptor || !is_unix_socket(files.descriptor.get()))
    return refuse("the peer has passed no Unix socket for descriptors");
  peer_->files = std::move(files.descriptor);
  try_reading(theirs);
  return Status::ok();
}

void Meeting::try_reading(const Greeting& theirs) {
  ReadAttempt attempt{.pid = peer_->pid, .pidfd_error = pidfd_error_};
  if (may_read_ && attempt.pid != 0 && attempt.pidfd_error == 0) {
    Key found{};
    iovec here{found.data(), found.size()};
    iovec there{reinterpret_cast<void*>(static_cast<uintptr_t>(theirs.probe_at)), found.size()};
    const ssize_t bytes = read_process(attempt.pid, {&here, 1}, {&there, 1});
    attempt.read_error = bytes < 0 ? errno : 0;
    attempt.found = bytes == static_cast<ssize_t>(found.size()) && found == theirs.probe;
    // `check_user` has made sure that the peer has this user.
    if (attempt.read_error == EPERM) look_up_rights(attempt, ::geteuid(), their_user_namespace_);
  }
  reads_ = may_read_ ? why_unread(attempt) : "this end does not read the other's";
  if (reads_.empty()) reads_ = kYes;
  if (attempt.pidfd_error != 0) peer_->pid = 0;
  peer_->reads_memory = reads_ == kYes;
  said_["reads"] = reads_;
}

std::string Meeting::describe() const {
  if (peer_->reads_memory && peer_->is_read)
    return peer_->same_process ? "same process" : "same host, host memory (cross-memory attach)";
  const char* const way = peer_->reads_memory == peer_->is_read ? ""
                          : peer_->reads_memory                 ? " that is sent"
                                                                : " that is received";
  return concat("same host, host memory", way, " through shared memory: ", peer_->reads_memory ? peer_reads_ : reads_);
}

}  // namespace

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

const char* describe_way(GpuLink link) {
  switch (link) {
    case GpuLink::kSame:
      return "within one GPU";
    case GpuLink::kNvlink:
      return "over NVLink";
    case GpuLink::kPcie:
      return "over PCIe";
    case GpuLink::kNone:
      return "through host memory, because these GPUs do not reach each other";
    case GpuLink::kUnknown:
      break;
  }
  return "copied by the GPUs";
}

Result<HostMeeting> meet_on_host(BootstrapChannel& channel, const MeetingTerms& terms, Deadline deadline) {
  return Meeting(channel, terms, deadline).run();
}

}  // namespace tcpx
