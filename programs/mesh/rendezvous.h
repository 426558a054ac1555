// Rendezvous: how the processes of a mesh find each other. Rank 0 has a bootstrap server at a known place; every rank, rank 0
// itself included, connects and describes itself. When all are there and fit together, the leader holds a channel to each.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "programs/mesh/mesh_message.h"
#include "tcpx/status.h"
#include "transfer/bootstrap.h"

namespace tcpx::mesh {

/// Rank of this process, as told by the launcher that started it.
struct RankEnvironment {
  int rank = 0;        ///< 0 ... size - 1
  int size = 0;        ///< 2 ... kMostRanks
  int local_rank = 0;  ///< among the processes of this host, 0 ... size - 1
  bool operator==(const RankEnvironment&) const = default;
};

/// Reads what Open MPI's mpirun sets, else MPICH's or Intel's, else Slurm's srun: an mpirun inside a Slurm job sets both its own
/// and the job's, and its own are right.
/// @return kNotFound when no launcher started this process; kBadConfig naming the variable when one is missing beside the others
/// of its launcher, malformed or out of range.
Result<RankEnvironment> read_rank_environment();

/// A rank, as the leader knows it.
struct Member {
  RankDescription description;
  std::string address;  ///< where the others reach it: where its connection came from
  BootstrapChannel channel;
};

/// Waits until every rank of the mesh has come, and checks them against `leader`: rank 0's description of itself.
/// @return the members by rank. kTimeout naming the ranks that have not come; kMismatch naming the rank and what is wrong with
/// it: it is there twice, counts another number of ranks, is another build, or has another option; kInvalidArgument when the mesh
/// spans hosts and a rank came from a loopback address, where the others cannot reach it. Ranks that have come by then are told.
Result<std::vector<Member>> gather_members(BootstrapServer& server, const RankDescription& leader, Deadline deadline);

/// Connects to the leader at `host`:`port` and tells it `mine`. `stop` may be null; else it must outlive the channel.
Result<BootstrapChannel> join_mesh(const std::string& host, uint16_t port, const RankDescription& mine, Deadline deadline,
                                   const std::atomic<bool>* stop);

/// "rank 3 (host-b, GPU 1)"
std::string name_of(const RankDescription& description);

}  // namespace tcpx::mesh
