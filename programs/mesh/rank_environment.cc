#include "programs/mesh/rank_environment.h"

#include <array>

#include "base/environment.h"
#include "base/text.h"
#include "programs/mesh/mesh_schedule.h"

namespace tcpx::mesh {
namespace {

struct Launcher {
  const char* name;
  LauncherVariable rank, size, local_rank;
};
constexpr std::array<Launcher, 3> kLaunchers = {
    {{"Open MPI", LauncherVariable::kOmpiRank, LauncherVariable::kOmpiSize, LauncherVariable::kOmpiLocalRank},
     {"MPICH", LauncherVariable::kPmiRank, LauncherVariable::kPmiSize, LauncherVariable::kMpiLocalRank},
     {"Slurm", LauncherVariable::kSlurmRank, LauncherVariable::kSlurmSize, LauncherVariable::kSlurmLocalRank}}};

/// One of a launcher's variables, of which others are there.
Result<int> read_one(const Launcher& launcher, LauncherVariable id, int least, int most) {
  TCPX_ASSIGN_OR_RETURN(const auto value, launcher_integer(id));
  const std::string name(launcher_variable_name(id));
  if (!value) {
    return Status(Code::kBadConfig, "read environment",
                  concat(name, " is not set, while others that ", launcher.name, " sets are"));
  }
  if (*value < least || *value > most) {
    return Status(Code::kBadConfig, "read environment", concat(name, " is ", *value, ", allowed are ", least, " ... ", most));
  }
  return static_cast<int>(*value);
}

}  // namespace

Result<RankEnvironment> read_rank_environment() {
  for (const Launcher& launcher : kLaunchers) {
    bool any = false;
    for (const LauncherVariable id : {launcher.rank, launcher.size, launcher.local_rank}) any |= launcher_variable_is_set(id);
    if (!any) continue;
    TCPX_ASSIGN_OR_RETURN(const auto size, read_one(launcher, launcher.size, 2, kMostRanks));
    TCPX_ASSIGN_OR_RETURN(const auto rank, read_one(launcher, launcher.rank, 0, size - 1));
    TCPX_ASSIGN_OR_RETURN(const auto local_rank, read_one(launcher, launcher.local_rank, 0, size - 1));
    return RankEnvironment{rank, size, local_rank};
  }
  return Status(Code::kNotFound, "find this process's rank", "no launcher started it: use ./run_p2p_fullmesh.sh, mpirun or srun");
}

}  // namespace tcpx::mesh
