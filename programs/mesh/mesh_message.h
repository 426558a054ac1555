// Messages between leader and members of a mesh, as parameters of a bootstrap channel. Pure.
//
// Decoding trusts nothing: a missing, malformed or out-of-range field is kProtocol naming it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "programs/mesh/mesh_schedule.h"
#include "tcpx/status.h"
#include "wire/set_up_messages.h"

namespace tcpx::mesh {

/// A process's description of itself when it joins.
struct RankDescription {
  int rank = 0;
  int size = 0;         ///< of the whole mesh
  std::string host;     ///< name of its machine
  std::string memory;   ///< "GPU 0", "host memory"
  std::string version;  ///< of its build
  uint16_t port = 0;    ///< of its own bootstrap server, to which others send
  Parameters options;   ///< must be the same at every rank; at most 20
};
Parameters encode_description(const RankDescription& description);
Result<RankDescription> decode_description(const Parameters& parameters);

/// Task of one rank in one round.
struct Task {
  struct Receiver {
    int rank = 0;
    std::string host;  ///< name or address to reach it
    uint16_t port = 0;
  };
  int round = 0;
  std::optional<Receiver> send_to;
  std::optional<int> receive_from;
};

/// Command of the leader: the task of a round, `go` once everybody is ready to be timed, `end` after the last round.
struct Command {
  enum class Kind { kTask, kGo, kEnd };
  Kind kind = Kind::kEnd;
  Task task;  ///< kTask
};
Parameters encode_command(const Command& command);
Result<Command> decode_command(const Parameters& parameters);

/// Measurement of one end of a pair.
struct PairResult {
  double gigabytes_per_second = 0;  ///< 1e9 bytes; finite, not negative
  bool verified = false;            ///< every byte was compared
};

/// Results of a rank's parts in a round; nullopt for a part it had not.
struct RoundReport {
  std::optional<Result<PairResult>> sent;
  std::optional<Result<PairResult>> received;
};
Parameters encode_report(const RoundReport& report);
/// An error keeps its code; its operation becomes "reported", its detail the text.
Result<RoundReport> decode_report(const Parameters& parameters);

}  // namespace tcpx::mesh
