// The ends talk over the connection that is tested, in messages of a few bytes: the receiver names a seed, the sender fills its
// memory and says so, and sends when it is told to, so that neither filling nor comparing is timed.
#include "tools/doctor/selftest_source.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "measure/child.h"
#include "tcpx/endpoint.h"
#include "tools/doctor/raw_tcp.h"
#include "tools/doctor/selftest_memory.h"

namespace tcpx::doctor {
namespace {

constexpr char kHere[] = "127.0.0.1";
constexpr char kOwnProgram[] = "/proc/self/exe";
constexpr int kChildDescriptor = 3;  // where it says what went wrong; above the standard streams
constexpr size_t kTimedTransfers = 5;
constexpr uint64_t kLeave = ~uint64_t{0};            // no seed
constexpr uint64_t kSmallestShare = 100;             // of all bytes, to count a socket
constexpr std::chrono::milliseconds kPatience{100};  // between looks at whether the other process has failed
constexpr Duration kPartingLimit = std::chrono::seconds(1);
// Of one end, which outlives what its peer allows itself.
constexpr std::chrono::milliseconds kEndLimit{12'000};

std::chrono::milliseconds remaining(Deadline deadline) {
  return std::chrono::milliseconds(deadline.poll_ms());
}

/// One end of the connection, with a word that it exchanges and the memory that is transferred.
class End {
 public:
  static Result<std::unique_ptr<End>> create(SelftestMemory memory, Deadline deadline) {
    auto endpoint = Endpoint::create({.gpu_idx = memory.gpu_idx(), .listen_address = kHere});
    if (!endpoint.is_ok()) return endpoint.status();
    auto end = std::unique_ptr<End>(new End(std::move(memory), std::move(*endpoint), deadline));
    const auto word = end->endpoint_->register_memory(&end->word_, sizeof end->word_, MemoryType::kHost);
    if (!word.is_ok()) return word.status();
    const auto data = end->endpoint_->register_memory(end->memory_.data(), end->memory_.size());
    if (!data.is_ok()) return data.status();
    end->word_range_ = {*word, &end->word_, sizeof end->word_};
    end->data_range_ = {*data, end->memory_.data(), end->memory_.size()};
    return end;
  }

  Endpoint& endpoint() { return *endpoint_; }
  SelftestMemory& memory() { return memory_; }
  void use(ConnId conn) { conn_ = conn; }

  Status tell(uint64_t word) {
    word_ = word;
    return endpoint_->send(conn_, {&word_range_, 1}, options());
  }
  Result<uint64_t> hear() {
    TCPX_RETURN_IF_ERROR(endpoint_->recv(conn_, {&word_range_, 1}, options()));
    return word_;
  }
  Status send_data() { return endpoint_->send(conn_, {&data_range_, 1}, options()); }
  Result<OperationId> receive_data() { return endpoint_->recv_async(conn_, {&data_range_, 1}, options()); }
  Status wait(OperationId id) { return endpoint_->wait(id, remaining(deadline_)); }

 private:
  End(SelftestMemory memory, std::unique_ptr<Endpoint> endpoint, Deadline deadline)
      : memory_(std::move(memory)), endpoint_(std::move(endpoint)), deadline_(deadline) {}
  SubmitOptions options() const { return {.timeout = std::max(remaining(deadline_), std::chrono::milliseconds(1))}; }

  SelftestMemory memory_;
  uint64_t word_ = 0;
  std::unique_ptr<Endpoint> endpoint_;  // goes before the memory that is registered with it
  LocalRange word_range_, data_range_;
  ConnId conn_{};
  const Deadline deadline_;
};

/// One transfer, and the comparison of what has come. @return seconds
Result<double> transfer_once(End& end, uint64_t seed) {
  TCPX_RETURN_IF_ERROR(end.tell(seed));
  const auto filled = end.hear();
  if (!filled.is_ok()) return filled.status();
  const auto receive = end.receive_data();
  if (!receive.is_ok()) return receive.status();
  const TimePoint begin = Clock::steady().now();
  TCPX_RETURN_IF_ERROR(end.tell(seed));
  TCPX_RETURN_IF_ERROR(end.wait(*receive));
  const std::chrono::duration<double> took = Clock::steady().now() - begin;
  TCPX_RETURN_IF_ERROR(end.memory().verify(seed));
  return took.count();
}

Status transfers(End& end, uint64_t bytes, TimePoint enough, SelftestTransfers& moved) {
  for (uint64_t seed = 0; seed <= kTimedTransfers && (moved.seconds.empty() || Clock::steady().now() < enough); ++seed) {
    const auto took = transfer_once(end, seed);
    if (!took.is_ok()) return took.status();
    if (seed > 0) moved.seconds.push_back(*took);
  }
  const EndpointStats stats = end.endpoint().stats();
  if (stats.connections.empty()) return Status(Code::kPeerGone, "transfer test data", "the connection has ended");
  moved.path = stats.connections.front().path;
  // A share so small that only sockets for words have less.
  moved.sockets = std::max<size_t>(1, sockets_that_received(bytes / kSmallestShare));
  return end.tell(kLeave);
}

/// What the other process has written before it ended. "" when it had nothing to say.
std::string last_words(int fd) {
  char text[512];
  const ssize_t n = ::read(fd, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : "";
}

class EndpointSource final : public SelftestSource {
 public:
  Result<SelftestTransfers> transfer(uint64_t bytes, Duration limit) override {
    const TimePoint enough = Clock::steady().now() + limit / 2;
    const Deadline deadline = Deadline::after(limit);
    auto memory = SelftestMemory::create(bytes, 0);
    if (!memory.is_ok()) return memory.status();
    auto end = End::create(std::move(*memory), deadline);
    if (!end.is_ok()) return end.status();
    const auto here = Endpoint::read_metadata((*end)->endpoint().get_metadata());
    if (!here.is_ok()) return here.status();

    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return system_error("make a pipe", errno);
    const UniqueFd words(ends[0]);
    UniqueFd theirs(ends[1]);
    auto child = bench::Child::start({kOwnProgram, kSelftestEndOption, concat(here->port, ':', bytes)}, {},
                                     {{theirs.get(), kChildDescriptor}});
    if (!child.is_ok()) return child.status();
    theirs.reset();
    SelftestTransfers moved;
    Status status = accept(**end, words.get(), deadline);
    if (status.is_ok()) status = transfers(**end, bytes, enough, moved);
    if (status.code() == Code::kMismatch) return status;
    const auto code = child->wait_until(Deadline::after(kPartingLimit));
    // Who fails first knows why; the other one only sees that it is gone.
    if (const std::string text = last_words(words.get()); !text.empty()) {
      return Status(Code::kPeerGone, "transfer test data", concat("the sending process: ", text));
    }
    if (code.has_value() && *code != 0) {
      return Status(Code::kPeerGone, "transfer test data", concat("the sending process ", bench::describe_exit(*code)));
    }
    if (!status.is_ok()) return status;
    if (!code) return Status(Code::kTimeout, "transfer test data", "the sending process does not end");
    return moved;
  }

  Result<std::vector<double>> raw_tcp(uint64_t bytes, size_t sockets, Duration limit) override {
    return time_raw_tcp(bytes, sockets, limit);
  }

 private:
  /// @param words readable, or at its end, when the other process has failed
  static Status accept(End& end, int words, Deadline deadline) {
    for (;;) {
      const auto accepted = end.endpoint().accept(std::min(remaining(deadline), kPatience));
      if (accepted.is_ok()) {
        end.use(accepted->conn);
        return Status::ok();
      }
      pollfd entry{.fd = words, .events = POLLIN, .revents = 0};
      if (accepted.status().code() != Code::kTimeout || deadline.expired() || ::poll(&entry, 1, 0) != 0) return accepted.status();
    }
  }
};

Status send_what_is_asked_for(uint16_t port, uint64_t bytes) {
  auto memory = SelftestMemory::create(bytes, 1);
  if (!memory.is_ok()) return memory.status();
  auto end = End::create(std::move(*memory), Deadline::after(kEndLimit));
  if (!end.is_ok()) return end.status();
  const auto conn = (*end)->endpoint().connect(kHere, 0, port, kEndLimit);
  if (!conn.is_ok()) return conn.status();
  (*end)->use(*conn);
  for (;;) {
    const auto seed = (*end)->hear();
    if (!seed.is_ok()) return seed.status();
    if (*seed == kLeave) return Status::ok();
    TCPX_RETURN_IF_ERROR((*end)->memory().fill(*seed));
    TCPX_RETURN_IF_ERROR((*end)->tell(*seed));
    const auto go = (*end)->hear();
    if (!go.is_ok()) return go.status();
    TCPX_RETURN_IF_ERROR((*end)->send_data());
  }
}

}  // namespace

std::unique_ptr<SelftestSource> make_selftest_source() {
  return std::make_unique<EndpointSource>();
}

int run_selftest_end(const std::string& task) {
  // Ends with the process that asked for it, however that one ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::fcntl(kChildDescriptor, F_SETFD, FD_CLOEXEC);
  pollfd reader{.fd = kChildDescriptor, .events = POLLOUT, .revents = 0};
  if (::poll(&reader, 1, 0) > 0 && (reader.revents & (POLLERR | POLLNVAL)) != 0) return 2;  // it has ended before
  const char* const last = task.data() + task.size();
  uint16_t port = 0;
  uint64_t bytes = 0;
  const auto first = std::from_chars(task.data(), last, port);
  const bool good = first.ec == std::errc() && first.ptr != last && *first.ptr == ':' &&
                    std::from_chars(first.ptr + 1, last, bytes).ec == std::errc() && bytes > 0;
  const Status status = good ? send_what_is_asked_for(port, bytes) : Status(Code::kInvalidArgument, "read the task", task);
  if (status.is_ok()) return 0;
  const std::string text = status.to_string();
  return ::write(kChildDescriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 1 : 2;
}

}  // namespace tcpx::doctor
