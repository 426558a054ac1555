// A socket with its place in an event loop: the common part of data and control sockets.
#pragma once

#include "base/unique_fd.h"
#include "net/soft/io_thread.h"

namespace tcpx::soft {

class SocketHandler : public IoHandler {
 public:
  /// A class that derives from this must call stop() in its destructor: its own members are destroyed before the registration is.
  explicit SocketHandler(UniqueFd fd) : fd_(std::move(fd)) {}

  Status start(IoThread& thread) { return thread.add(fd_.get(), *this, registration_); }
  /// After this the handler is not running and will not run again.
  void stop() { registration_.remove(); }
  void kick() const { registration_.kick(); }

 protected:
  int fd() const { return fd_.get(); }
  /// After stop().
  UniqueFd take_fd() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  IoRegistration registration_;
};

}  // namespace tcpx::soft
