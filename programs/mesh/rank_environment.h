// Rank of this process in the mesh, as told by the launcher that started it.
#pragma once

#include "tcpx/status.h"

namespace tcpx::mesh {

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

}  // namespace tcpx::mesh
