// Results of a mesh, as a report (measure/report.h) for people and programs.
#pragma once

#include <string>
#include <vector>

#include "measure/report.h"
#include "programs/mesh/mesh_rounds.h"

namespace tcpx::mesh {

/// Contents of the report.
struct MeshResults {
  std::vector<std::string> ranks;  ///< "host-a GPU 0", by rank; plain text
  Parameters parameters;           ///< on which the numbers depend
  MeshOutcome outcome;
};

/// Tables: the matrix of rates, senders down and receivers across; a summary with the slowest pair; why pairs failed, if any did.
Report mesh_report(const MeshResults& results);

/// Ok when every one of `planned_pairs` was measured; else what the first failure was, or that it was interrupted.
Status mesh_verdict(const MeshOutcome& outcome, size_t planned_pairs);

}  // namespace tcpx::mesh
