#include "net/devmem/steering_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/fork.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::devmem {
namespace {

constexpr char kRecord[] = "record a change of the flow table";
constexpr char kRead[] = "read what is recorded of the flow table";
constexpr uint32_t kMagic = 0x31525354;  // "TSR1"
constexpr uint32_t kMostTableEntries = 64 * 1024;
constexpr std::chrono::seconds kLongestWait{5};

/// What a file begins with; the entries of the table follow.
struct FileHead {
  uint32_t magic;
  uint32_t kind;
  uint32_t queue;
  uint32_t entries;
  ethtool_rx_flow_spec rule;
};
static_assert(sizeof(FileHead) == 16 + sizeof(ethtool_rx_flow_spec));

/// False: the file is shorter.
Result<bool> read_all(int fd, void* to, size_t bytes, size_t at) {
  const ssize_t got = ::pread(fd, to, bytes, static_cast<off_t>(at));
  if (got < 0) return system_error(kRead, errno);
  return got == static_cast<ssize_t>(bytes);
}

/// False: there is no whole record.
Result<bool> read_record(int fd, SteeringRecord& record) {
  FileHead head;
  TCPX_ASSIGN_OR_RETURN(const bool has_head, read_all(fd, &head, sizeof head, 0));
  if (!has_head || head.magic != kMagic || head.entries > kMostTableEntries) return false;
  if (head.kind != static_cast<uint32_t>(SteeringRecord::Kind::kRule) &&
      head.kind != static_cast<uint32_t>(SteeringRecord::Kind::kRssTable))
    return false;
  record.kind = static_cast<SteeringRecord::Kind>(head.kind);
  record.queue = head.queue;
  record.rule = head.rule;
  record.table.resize(head.entries);
  return read_all(fd, record.table.data(), head.entries * sizeof(uint32_t), sizeof head);
}

/// The network namespace of this thread, as its inode.
uint64_t network_namespace() {
  struct stat told {};
  return ::stat("/proc/thread-self/ns/net", &told) == 0 ? told.st_ino : 0;
}

}  // namespace

Status SteeringRecordFile::place_rule(uint32_t location) {
  record_.rule.location = location;
  return write();
}

void SteeringRecordFile::remove() {
  ::unlink(path_.c_str());
}

Status SteeringRecordFile::write() {
  const FileHead head{kMagic, static_cast<uint32_t>(record_.kind), record_.queue, static_cast<uint32_t>(record_.table.size()),
                      record_.rule};
  std::vector<std::byte> bytes(sizeof head + record_.table.size() * sizeof(uint32_t));
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!record_.table.empty()) std::memcpy(bytes.data() + sizeof head, record_.table.data(), bytes.size() - sizeof head);
  const ssize_t written = ::pwrite(fd_.get(), bytes.data(), bytes.size(), 0);
  if (written == static_cast<ssize_t>(bytes.size())) return Status::ok();
  return system_error(concat(kRecord, " in ", path_), written < 0 ? errno : ENOSPC);
}

std::string SteeringRecords::default_directory() {
  constexpr char kRun[] = "/run/tcpx-devmem";
  if (::mkdir(kRun, 0755) == 0 || (errno == EEXIST && ::access(kRun, W_OK) == 0)) return kRun;
  return concat("/dev/shm/tcpx-", ::geteuid());
}

Result<SteeringRecords> SteeringRecords::open(const std::string& directory, uint32_t interface) {
  const std::string operation = concat(kRecord, " in ", directory);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return system_error(operation, errno);
  struct stat told {};
  if (::lstat(directory.c_str(), &told) != 0) return system_error(operation, errno);
  if (!S_ISDIR(told.st_mode) || told.st_uid != ::geteuid() || (told.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Status(Code::kSystem, operation, "it must be a directory that only this user may write to", Domain::kErrno, EPERM);
  return SteeringRecords(directory, concat("steering-", network_namespace(), "-", interface));
}

Result<UniqueFd> SteeringRecords::lock() const {
  const std::string path = concat(directory_, "/", prefix_, ".lock");
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error(concat("open ", path), errno);
  drop_in_child(fd.get());
  const Deadline end = Deadline::after(kLongestWait);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error(concat("lock ", path), errno);
    if (end.expired()) return Status(Code::kTimeout, concat("lock ", path), "another process holds it");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return fd;
}

Result<SteeringRecordFile> SteeringRecords::add(SteeringRecord record) const {
  std::string path = concat(directory_, "/", prefix_, "-XXXXXX");
  UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd) return system_error(concat(kRecord, " in ", path), errno);
  drop_in_child(fd.get());
  SteeringRecordFile file(std::move(record), std::move(path), std::move(fd), false);
  Status status = file.write();
  if (status.is_ok() && ::flock(file.fd_.get(), LOCK_EX | LOCK_NB) != 0) status = system_error(kRecord, errno);
  if (status.is_ok()) return file;
  file.remove();
  return status;
}

Result<std::vector<SteeringRecordFile>> SteeringRecords::read() const {
  std::vector<SteeringRecordFile> files;
  std::error_code error;
  for (std::filesystem::directory_iterator each(directory_, error), end; !error && each != end; each.increment(error)) {
    const std::filesystem::path& path = each->path();
    if (path.filename().string().rfind(prefix_ + "-", 0) != 0) continue;
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    const std::string operation = concat(kRead, " in ", path.string());
    if (!fd) return system_error(operation, errno);
    drop_in_child(fd.get());
    const bool is_left = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!is_left && errno != EWOULDBLOCK) return system_error(operation, errno);
    SteeringRecord record;
    TCPX_ASSIGN_OR_RETURN(const bool is_whole, read_record(fd.get(), record));
    // A process may have more records than it may have files open.
    if (is_whole)
      files.emplace_back(std::move(record), path.string(), UniqueFd(), is_left);
    else if (is_left)
      ::unlink(path.c_str());
    else
      return Status(Code::kProtocol, operation, "a process holds it, and it is no record of this version");
  }
  if (error) return system_error(concat(kRead, " in ", directory_), error.value());
  return files;
}

}  // namespace tcpx::devmem
