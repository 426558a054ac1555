#include "measure/result_file.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/clock.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/words.h"

namespace tcpx {
namespace {

// The kernel follows no more.
constexpr int kMostLinks = 40;
// Time for the reader of a pipe to take some of it.
constexpr Duration kReaderTime = std::chrono::seconds(10);

Status failed(const char* operation, const std::string& path, int error) {
  return {error == ENOENT ? Code::kNotFound : Code::kSystem, operation, concat(path, ": ", std::strerror(error)), Domain::kErrno,
          error};
}

Status write_all(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      TCPX_RETURN_IF_ERROR(wait_for(fd, POLLOUT, Deadline::after(kReaderTime)));
    } else if (written < 0 && errno != EINTR) {
      return failed("write", path, errno);
    }
  }
  return Status::ok();
}

/// The target of a path.
struct Place {
  std::string path;
  bool replaceable = false;  ///< a file, or nothing yet
};

/// Target of the links at the end of `path`. Those of /proc name descriptors of this process, not files to replace.
Result<Place> follow(std::string path) {
  struct stat proc = {};
  const bool has_proc = ::stat("/proc/self/fd", &proc) == 0;
  for (int links = 0; links < kMostLinks; ++links) {
    struct stat entry = {};
    if (::lstat(path.c_str(), &entry) != 0) {
      if (errno == ENOENT) return Place{std::move(path), true};
      return failed("look at", path, errno);
    }
    if (!S_ISLNK(entry.st_mode)) return Place{std::move(path), S_ISREG(entry.st_mode)};
    if (has_proc && entry.st_dev == proc.st_dev) return Place{std::move(path), false};
    char target[PATH_MAX];
    const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
    if (size < 0) return failed("read link", path, errno);
    // An absolute one replaces what stands before it.
    path = (std::filesystem::path(path).parent_path() / std::string(target, static_cast<size_t>(size))).string();
  }
  return failed("follow links of", path, ELOOP);
}

/// The descriptor of this process that `path` names. -1: none.
int descriptor_of(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  const int fd = number_of<int>(name).value_or(-1);
  struct stat named = {}, open = {};
  const bool same = fd >= 0 && ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 && named.st_dev == open.st_dev &&
                    named.st_ino == open.st_ino;
  return same ? fd : -1;
}

/// To a device, a pipe, or behind what has been written to a descriptor of this process.
Status write_in_place(const std::string& path, std::string_view bytes) {
  // Earlier output of the program comes first where it goes to the same place.
  std::fflush(stdout);
  if (const int fd = descriptor_of(path); fd >= 0) return write_all(fd, path, bytes);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return fd ? write_all(fd.get(), path, bytes) : failed("open", path, errno);
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
  TCPX_ASSIGN_OR_RETURN(const Place place, follow(path));
  if (!place.replaceable) return write_in_place(place.path, bytes);
  const std::string temporary = concat(place.path, ".", ::getpid(), ".tmp");
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return failed("create", temporary, errno);
  Status status = write_and_rename(std::move(fd), temporary, place.path, bytes);
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
