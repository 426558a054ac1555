#include "programs/doctor/service_source.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/socket_io.h"
#include "base/unique_fd.h"

namespace tcpx::doctor {
namespace {

ServiceAnswer ended(ServiceAnswer::End end, std::string detail = {}) {
  return {.end = end, .message = {}, .detail = std::move(detail)};
}

ServiceAnswer refused_by(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return ended(ServiceAnswer::End::kAbsent);
    case EACCES:
    case EPERM:
      return ended(ServiceAnswer::End::kDenied);
    case ECONNREFUSED:
      return ended(ServiceAnswer::End::kRefused);
    case EAGAIN:  // its queue of connections is full (unix(7))
      return ended(ServiceAnswer::End::kSilent);
    default:
      return ended(ServiceAnswer::End::kFailed, std::strerror(error));
  }
}

ServiceAnswer broken_by(const Status& status) {
  if (status.code() == Code::kPeerGone) return ended(ServiceAnswer::End::kClosed);
  if (status.code() == Code::kTimeout) return ended(ServiceAnswer::End::kSilent);
  return ended(ServiceAnswer::End::kFailed, status.detail());
}

class UnixServiceSource final : public ServiceSource {
 public:
  explicit UnixServiceSource(Duration limit) : limit_(limit) {}

  ServiceAnswer talk(const std::string& path, std::string_view request) override {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
      return ended(ServiceAnswer::End::kFailed, "the path is too long for a unix socket");
    path.copy(address.sun_path, path.size());
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) return ended(ServiceAnswer::End::kFailed, std::strerror(errno));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return refused_by(errno);
    if (request.empty()) return ended(ServiceAnswer::End::kConnected);

    const Deadline deadline = Deadline::after(limit_);
    if (Status status = send_all(socket.get(), std::as_bytes(std::span(request)), deadline); !status.is_ok())
      return broken_by(status);
    std::array<unsigned char, 2> length;
    if (Status status = recv_all(socket.get(), std::as_writable_bytes(std::span(length)), deadline); !status.is_ok())
      return broken_by(status);
    ServiceAnswer answer = ended(ServiceAnswer::End::kAnswered);
    answer.message.resize(size_t{length[0]} << 8 | length[1]);
    if (Status status = recv_all(socket.get(), std::as_writable_bytes(std::span(answer.message)), deadline); !status.is_ok())
      return broken_by(status);
    return answer;
  }

 private:
  Duration limit_;
};

}  // namespace

std::unique_ptr<ServiceSource> make_service_source(Duration limit) {
  return std::make_unique<UnixServiceSource>(limit);
}

}  // namespace tcpx::doctor
