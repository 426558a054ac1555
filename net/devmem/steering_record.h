// Records of what processes have changed at a NIC's flow table, so that a later process can undo what a dead one left.
//
// Neither rules nor RSS tables have room for a mark, so each change has a small file. The process that made the change holds a
// lock (flock(2)) on it, which ends with the process, however it dies; a process number could be another's by then. Files are
// of a network namespace and interface, lie in memory and are gone after a reboot, as the changes are.
#pragma once

#include <linux/ethtool.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

struct SteeringRecord {
  enum class Kind : uint32_t { kRule = 1, kRssTable = 2 };

  Kind kind = Kind::kRule;
  uint32_t queue = 0;
  ethtool_rx_flow_spec rule{};  ///< its location is RX_CLS_LOC_ANY while it is being inserted
  std::vector<uint32_t> table;  ///< RSS as it was without `queue` and others taken out
};

/// A record in its file. Destruction keeps the file, and lets go of the lock: then it counts as a dead process's.
class SteeringRecordFile {
 public:
  SteeringRecordFile(SteeringRecord record, std::string path, UniqueFd fd, bool is_left)
      : record_(std::move(record)), path_(std::move(path)), fd_(std::move(fd)), is_left_(is_left) {}

  const SteeringRecord& record() const { return record_; }
  const std::string& path() const { return path_; }
  /// Nobody held the lock when it was read.
  bool is_left() const { return is_left_; }
  /// The rule is at this location now.
  Status place_rule(uint32_t location);
  void remove();

 private:
  friend class SteeringRecords;
  Status write();

  SteeringRecord record_;
  std::string path_;
  UniqueFd fd_;
  bool is_left_;
};

/// The records of an interface. All but `open` and `lock` is done with the lock held.
class SteeringRecords {
 public:
  /// @param directory made if there is none; belongs to this user alone, because what is recorded is undone
  static Result<SteeringRecords> open(const std::string& directory, uint32_t interface);
  /// "/run/tcpx-devmem", or for users who cannot make it a directory of /dev/shm.
  static std::string default_directory();

  /// Keeps other processes from changing records and flow table until the descriptor is closed. @return kTimeout after 5 s
  Result<UniqueFd> lock() const;
  Result<SteeringRecordFile> add(SteeringRecord record) const;
  /// All there are, without their files, and so without `place_rule`. Files without a whole record, of a process that died while it
  /// wrote, are removed.
  /// @return the errors of open(2) and read(2) for any of them, and kProtocol: a living process's is not whole. Then nobody may
  /// take what is missing for absent
  Result<std::vector<SteeringRecordFile>> read() const;

 private:
  explicit SteeringRecords(std::string directory, std::string prefix)
      : directory_(std::move(directory)), prefix_(std::move(prefix)) {}

  std::string directory_;
  std::string prefix_;  // of the interface's files
};

}  // namespace tcpx::devmem
