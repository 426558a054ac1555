#include "net/devmem/broker_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/mutex.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unix_socket.h"
#include "net/devmem/broker_messages.h"

namespace tcpx::devmem {
namespace {

constexpr char kAsk[] = "ask tcpx_devmemd";
constexpr std::chrono::seconds kPatience{30};  // drivers that restart a queue take seconds

/// A connection to the broker. After a failure of its own there is none.
class BrokerLine {
 public:
  explicit BrokerLine(ForeignFd fd) : fd_(std::move(fd)) {}

  /// @param descriptor -1: none goes with the question
  Result<BrokerAnswer> ask(const BrokerQuestion& question, int descriptor = -1) TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!fd_) return Status(Code::kPeerGone, kAsk, "it is gone");
    const auto answer = exchange(question, descriptor);
    if (!answer.is_ok()) fd_.reset();
    TCPX_RETURN_IF_ERROR(answer.status());
    if (answer->code == 0) return answer;
    return Status(static_cast<Code>(answer->code), kAsk, std::string(answer->text, answer->text_bytes),
                  answer->error != 0 ? Domain::kErrno : Domain::kNone, answer->error);
  }

  bool is_there() TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    pollfd entry{fd_.get(), 0, 0};
    return fd_ && ::poll(&entry, 1, 0) == 0;
  }

 private:
  Result<BrokerAnswer> exchange(const BrokerQuestion& question, int descriptor) TCPX_REQUIRES(mutex_) {
    const auto bytes = std::as_bytes(std::span(&question, 1));
    const Status sent = descriptor >= 0 ? send_descriptor(fd_.get(), bytes, descriptor)
                        : ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0
                            ? system_error(kAsk, errno)
                            : Status::ok();
    // A broker that turns this process away says why and reads nothing.
    if (!sent.is_ok() && sent.code() != Code::kPeerGone) return sent;
    TCPX_RETURN_IF_ERROR(wait_for(fd_.get(), POLLIN, Deadline::after(kPatience)));
    BrokerAnswer answer;
    const ssize_t got = ::recv(fd_.get(), &answer, sizeof answer, MSG_DONTWAIT | MSG_TRUNC);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return Status(Code::kPeerGone, kAsk, "it has ended the connection");
    if (got < 0) return system_error(kAsk, errno);
    if (got != static_cast<ssize_t>(sizeof answer) || answer.magic != kBrokerMagic || answer.version != kBrokerVersion ||
        answer.text_bytes > sizeof answer.text || answer.code < 0 || answer.code > static_cast<int32_t>(kLastCode))
      return Status(Code::kProtocol, kAsk, concat("its answer is not one of version ", kBrokerVersion));
    return answer;
  }

  Mutex mutex_;
  ForeignFd fd_ TCPX_GUARDED_BY(mutex_);
};

class BrokeredBinding final : public QueueBinding {
 public:
  BrokeredBinding(std::shared_ptr<BrokerLine> line, const BrokerAnswer& bound)
      : QueueBinding(bound.id, bound.queue), line_(std::move(line)) {}
  // The answer comes when the queue is free, so that the next question can have it.
  ~BrokeredBinding() override { (void)line_->ask({.kind = BrokerQuestionKind::kUnbind}); }

  Result<std::shared_ptr<const void>> lead(int listener) override {
    struct Rule {
      ~Rule() { (void)line->ask({.kind = BrokerQuestionKind::kUnlead, .rule = number}); }
      const std::shared_ptr<BrokerLine> line;  // shared: rule and binding both end by it
      const uint32_t number;
    };
    TCPX_ASSIGN_OR_RETURN(const BrokerAnswer answer, line_->ask({.kind = BrokerQuestionKind::kLead}, listener));
    return std::shared_ptr<const void>(std::shared_ptr<const Rule>(new Rule{line_, answer.id}));
  }
  bool is_there() const override { return line_->is_there(); }

 private:
  const std::shared_ptr<BrokerLine> line_;
};

}  // namespace

Result<std::shared_ptr<QueueBinding>> bind_by_broker(const std::string& socket, const std::string& interface, int dmabuf,
                                                     uint64_t bytes) {
  BrokerQuestion question{.kind = BrokerQuestionKind::kBind, .bytes = bytes};
  if (socket.empty() || socket.front() != '/') return Status(Code::kInvalidArgument, kAsk, concat("not a path: ", socket));
  if (interface.size() >= sizeof question.interface) return Status(Code::kInvalidArgument, kAsk, "no interface: " + interface);
  interface.copy(question.interface, interface.size());
  auto fd = connect_unix(socket, SOCK_SEQPACKET);
  if (!fd.is_ok())
    return Status(fd.status().code(), kAsk, concat(fd.status().detail(), ": ", socket), fd.status().domain(),
                  fd.status().native());
  auto line = std::make_shared<BrokerLine>(*std::move(fd));
  TCPX_ASSIGN_OR_RETURN(const BrokerAnswer answer, line->ask(question, dmabuf));
  return std::shared_ptr<QueueBinding>(std::make_shared<BrokeredBinding>(std::move(line), answer));
}

}  // namespace tcpx::devmem
