#include "secure/secret.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/environment.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace tcpx {
namespace {

constexpr const char* kRead = "read secret";

Status refuse(const std::string& path, const std::string& why) {
  return Status(Code::kBadConfig, kRead, concat(environment_info(Variable::kSecretFile).name, "=", path, ": ", why));
}

Status refuse_errno(const std::string& path) {
  const int error = errno;
  return Status(error == ENOENT ? Code::kNotFound : Code::kSystem, kRead,
                concat(environment_info(Variable::kSecretFile).name, "=", path, ": ", std::strerror(error)), Domain::kErrno,
                error);
}

Status check_owner(int fd, const std::string& path) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return refuse_errno(path);
  if (!S_ISREG(file.st_mode)) return refuse(path, "not a regular file");
  if (file.st_uid != ::geteuid() && file.st_uid != 0) return refuse(path, concat("the file of another user, ", file.st_uid));
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) return refuse(path, "open to group or others: run chmod 600 on it");
  return Status::ok();
}

}  // namespace

void Secret::Wipe::operator()(std::byte* memory) const {
  ::explicit_bzero(memory, kMostBytes);
  (void)::munmap(memory, kMostBytes);
}

Result<Secret> Secret::zeros(size_t size) {
  void* const memory = ::mmap(nullptr, kMostBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Status(Code::kExhausted, "allocate secret", "out of memory", Domain::kErrno, errno);
  Secret secret;
  secret.memory_.reset(static_cast<std::byte*>(memory));
  secret.size_ = size;
  if (::madvise(memory, kMostBytes, MADV_DONTDUMP) != 0)
    return Status(Code::kSystem, "allocate secret", "cannot be kept out of core dumps", Domain::kErrno, errno);
  return secret;
}

Result<Secret> Secret::read_file(const std::string& path) {
  // Opening a pipe would wait for its writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return refuse_errno(path);
  TCPX_RETURN_IF_ERROR(check_owner(fd.get(), path));
  TCPX_ASSIGN_OR_RETURN(Secret secret, zeros(kMostBytes));
  size_t size = 0;
  while (size < kMostBytes) {
    const ssize_t n = ::read(fd.get(), secret.memory_.get() + size, kMostBytes - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse_errno(path);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size == kMostBytes) return refuse(path, concat("longer than ", kMostBytes - 1, " bytes"));
  if (size > 0 && secret.memory_.get()[size - 1] == std::byte{'\n'}) --size;
  if (size < kFewestBytes) return refuse(path, concat("only ", size, " bytes; a secret has at least ", kFewestBytes));
  secret.size_ = size;
  return secret;
}

}  // namespace tcpx
