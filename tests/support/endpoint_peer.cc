// An endpoint as a process of its own, which executes the lines of its standard input and answers each with a line.
//
//   endpoint_peer PORT        listens on 127.0.0.1:PORT (0: any) and prints "ready METADATA", in hexadecimal
//   endpoint_peer PORT hidden    the same, and cannot read the memory of another process
//
//   passive                   takes connections in the background from now on          "ok"
//   accept [MS]               takes one that comes within that time                    "ok"
//   connect PORT              makes one to an endpoint on this host                    "ok"
//   advertise BYTES           of its memory, to the last connection                    "slot HEX"
//   send BYTES, recv BYTES    on the last connection; waits for the end                "ok"
//   stream BYTES              sends messages on the last connection without end        nothing
//   hammer BYTES              takes a slot that it is sent, writes there and reads, without end    nothing
//   writes BYTES              takes a slot that it is sent, writes its first and its next BYTES there by turns, without end    nothing
//   reads BYTES               takes a slot that it is sent, reads it without end       nothing
//   free COUNT                may open so many descriptors more from now on            "ok"
//   unlimited                 and as many as at first again                            "ok"
//   descriptors               how many it has                                          a number
//   close                     the last connection                                      "ok"
//   forbid                    reads no memory of other processes from now on           "ok"
//   become                    starts another program in its process                    nothing
//   fork                      leaves a child behind that only waits, for 60 s          "child PID"
//
// Failures are answered with "failed STATUS". It ends when its standard input does.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

#include "base/log.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/hex_text.h"
#include "tests/support/process_state.h"

namespace {

using namespace tcpx;
using namespace tcpx::testing;

constexpr size_t kMemoryBytes = 32 << 20;

std::string answer_of(const Status& status) {
  return status.is_ok() ? "ok" : concat("failed ", status.to_string());
}

class Peer {
 public:
  explicit Peer(Endpoint& endpoint) : endpoint_(endpoint), bytes_(kMemoryBytes) {
    fill();
    memory_ = endpoint.register_memory(bytes_.data(), bytes_.size()).value();
  }
  std::string obey(const std::string& verb, uint64_t number) {
    const LocalRange range{memory_, bytes_.data(), std::min<uint64_t>(number, kMemoryBytes)};
    if (verb == "passive") return answer_of(endpoint_.start_accepting());
    if (verb == "accept") {
      const auto accepted = endpoint_.accept(number > 0 ? std::chrono::milliseconds(number) : kCallTime);
      if (accepted.is_ok()) conn_ = accepted->conn;
      return answer_of(accepted.status());
    }
    if (verb == "connect") {
      const auto connected = endpoint_.connect("127.0.0.1", 0, static_cast<int>(number), kCallTime);
      if (connected.is_ok()) conn_ = *connected;
      return answer_of(connected.status());
    }
    if (verb == "close") return answer_of(endpoint_.remove_connection(conn_));
    if (verb == "descriptors") return std::to_string(descriptor_count());
    if (verb == "free") return leave_descriptors(number);
    if (verb == "unlimited") {
      fillers_.clear();
      return ::setrlimit(RLIMIT_NOFILE, &limit_) == 0 ? "ok" : "failed to set the limit";
    }
    if (verb == "advertise") {
      const auto slot = endpoint_.advertise(conn_, range);
      return slot.is_ok() ? concat("slot ", to_hex_text(&*slot, sizeof *slot)) : answer_of(slot.status());
    }
    if (verb == "send") {
      fill();  // the other end may have written here
      return answer_of(endpoint_.send(conn_, {&range, 1}));
    }
    if (verb == "recv") return answer_of(endpoint_.recv(conn_, {&range, 1}));
    if (verb == "forbid") return forbid_reading() ? "ok" : "failed to set the filter";
    if (verb == "become") {
      (void)::execl("/bin/cat", "cat", static_cast<char*>(nullptr));
      return "failed to start it";
    }
    if (verb == "fork") return concat("child ", leave_child());
    if (verb == "hammer") return concat("failed ", hammer(range).to_string());
    if (verb == "writes") return concat("failed ", write_by_turns(range).to_string());
    if (verb == "reads") return concat("failed ", read_on(range).to_string());
    Status status;
    while (verb == "stream" && status.is_ok()) status = endpoint_.send(conn_, {&range, 1});
    return concat("failed ", verb, " ", status.to_string());
  }

 private:
  // In all threads, as a profile of a container does it.
  static bool forbid_reading() {
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{.len = 4, .filter = code};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
  }
  // The bytes that it reads go behind those that it writes.
  Status hammer(const LocalRange& range) {
    TCPX_ASSIGN_OR_RETURN(const RemoteSlot slot, endpoint_.recv_slot(conn_));
    const LocalRange behind{memory_, bytes_.data() + range.bytes, range.bytes};
    for (;;) {
      TCPX_RETURN_IF_ERROR(endpoint_.write(conn_, range, {slot}));
      TCPX_RETURN_IF_ERROR(endpoint_.read(conn_, behind, {slot}));
    }
  }
  Status write_by_turns(const LocalRange& range) {
    TCPX_ASSIGN_OR_RETURN(const RemoteSlot slot, endpoint_.recv_slot(conn_));
    const LocalRange next{memory_, bytes_.data() + range.bytes, range.bytes};
    for (;;) {
      TCPX_RETURN_IF_ERROR(endpoint_.write(conn_, range, {slot}));
      TCPX_RETURN_IF_ERROR(endpoint_.write(conn_, next, {slot}));
    }
  }
  Status read_on(const LocalRange& range) {
    TCPX_ASSIGN_OR_RETURN(const RemoteSlot slot, endpoint_.recv_slot(conn_));
    for (;;) TCPX_RETURN_IF_ERROR(endpoint_.read(conn_, range, {slot}));
  }
  static pid_t leave_child() {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    ::alarm(60);
    for (;;) ::pause();
  }
  // The limit is on numbers, not on the count: the free ones below it are filled.
  std::string leave_descriptors(uint64_t count) {
    rlimit limit = limit_;
    limit.rlim_cur = 256;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return "failed to set the limit";
    for (int fd = ::dup(STDERR_FILENO); fd >= 0; fd = ::dup(STDERR_FILENO)) fillers_.emplace_back(fd);
    if (fillers_.size() < count) return "failed: no so many below the limit";
    fillers_.resize(fillers_.size() - count);
    return "ok";
  }
  // A few bytes one by one, the rest in copies: of 32 MiB the thread checker would look at each.
  void fill() {
    constexpr size_t kPeriod = 251;
    for (size_t i = 0; i < kPeriod; ++i) bytes_[i] = static_cast<std::byte>(i);
    for (size_t filled = kPeriod; filled < bytes_.size(); filled *= 2)
      std::memcpy(&bytes_[filled], bytes_.data(), std::min(filled, bytes_.size() - filled));
  }
  Endpoint& endpoint_;
  std::vector<std::byte> bytes_;
  MemoryId memory_{};
  ConnId conn_{};
  rlimit limit_ = [] {
    rlimit now{};
    (void)::getrlimit(RLIMIT_NOFILE, &now);
    return now;
  }();
  std::vector<UniqueFd> fillers_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && (argc != 3 || std::string(argv[2]) != "hidden")) return 2;
  ::alarm(120);  // never outlives a parent that died
  // Tests kill hundreds of peers, each of which would say which plugin it has.
  set_log_sink(
      [](LogLevel level, std::string_view text, void*) {
        if (level != LogLevel::kNotice) std::fprintf(stderr, "tcpx: %.*s\n", static_cast<int>(text.size()), text.data());
      },
      nullptr);
  EndpointConfig config = loopback_config();
  config.port = static_cast<uint16_t>(std::strtoul(argv[1], nullptr, 10));
  const auto endpoint = argc == 2 ? make_endpoint(config) : make_endpoint_that_reads_nobody(config);
  if (endpoint == nullptr) return 1;
  const auto metadata = endpoint->get_metadata();
  Peer peer(*endpoint);
  std::printf("ready %s\n", to_hex_text(metadata.data(), metadata.size()).c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    uint64_t number = 0;
    words >> verb >> number;
    std::printf("%s\n", peer.obey(verb, number).c_str());
    std::fflush(stdout);
  }
  return 0;
}
