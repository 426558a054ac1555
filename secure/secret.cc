#include "secure/secret.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace tcpx {
namespace {

constexpr const char* kRead = "read secret";

Status unfit(Variable variable, const std::string& path, const std::string& why) {
  return Status(Code::kBadConfig, kRead, concat(environment_info(variable).name, "=", path, ": ", why));
}

}  // namespace

Status cannot_open(Variable variable, const std::string& path) {
  const int error = errno;
  return Status(error == ENOENT ? Code::kNotFound : Code::kSystem, kRead,
                concat(environment_info(variable).name, "=", path, ": ", std::strerror(error)), Domain::kErrno, error);
}

Result<UniqueFd> open_private(Variable variable, const std::string& path) {
  // Opening a pipe would wait for its writer.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat file {};
  if (!fd || ::fstat(fd.get(), &file) != 0) return cannot_open(variable, path);
  if (!S_ISREG(file.st_mode)) return unfit(variable, path, "not a regular file");
  if (file.st_uid != ::geteuid() && file.st_uid != 0)
    return unfit(variable, path, concat("the file of another user, ", file.st_uid));
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) return unfit(variable, path, "open to group or others: run chmod 600 on it");
  return fd;
}

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
  constexpr Variable kFile = Variable::kSecretFile;
  TCPX_ASSIGN_OR_RETURN(const UniqueFd fd, open_private(kFile, path));
  TCPX_ASSIGN_OR_RETURN(Secret secret, zeros(kMostBytes));
  size_t size = 0;
  while (size < kMostBytes) {
    const ssize_t n = ::read(fd.get(), secret.memory_.get() + size, kMostBytes - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot_open(kFile, path);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size == kMostBytes) return unfit(kFile, path, concat("longer than ", kMostBytes - 1, " bytes"));
  if (size > 0 && secret.memory_.get()[size - 1] == std::byte{'\n'}) --size;
  if (size < kFewestBytes) return unfit(kFile, path, concat("only ", size, " bytes; a secret has at least ", kFewestBytes));
  secret.size_ = size;
  return secret;
}

}  // namespace tcpx
