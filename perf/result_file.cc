#include "perf/result_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "base/unique_fd.h"

namespace tcpx {
namespace {

Status failed(const char* operation, const std::string& path, int error) {
  return {error == ENOENT ? Code::kNotFound : Code::kSystem, operation, concat(path, ": ", std::strerror(error)), Domain::kErrno,
          error};
}

Status write_all(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return failed("write", path, errno);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Status::ok();
}

Status write_and_rename(UniqueFd fd, const std::string& temporary, const std::string& path, std::string_view bytes) {
  TCPX_RETURN_IF_ERROR(write_all(fd.get(), path, bytes));
  // Without it the new name may reach the disk before the bytes do.
  if (::fsync(fd.get()) != 0) return failed("flush", path, errno);
  if (::close(fd.release()) != 0) return failed("close", path, errno);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return failed("rename to", path, errno);
  return Status::ok();
}

}  // namespace

Status write_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = concat(path, ".", ::getpid(), ".tmp");
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return failed("create", temporary, errno);
  Status status = write_and_rename(std::move(fd), temporary, path, bytes);
  if (!status.is_ok()) ::unlink(temporary.c_str());
  return status;
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed("open", path, errno);
  std::string bytes;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", path, errno);
    if (n == 0) return bytes;
    if (static_cast<size_t>(n) > max_bytes - bytes.size()) {
      return Status(Code::kInvalidArgument, "read", concat(path, ": more than ", max_bytes, " bytes"));
    }
    bytes.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace tcpx
