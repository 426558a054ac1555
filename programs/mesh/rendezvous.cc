#include "programs/mesh/rendezvous.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/words.h"

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

// A connection that has said hello says at once who it is; one that does not must not hold up the others for long.
constexpr Duration kDescriptionTime = std::chrono::seconds(5);
// For telling those who have come that nothing becomes of it.
constexpr Duration kRefusalTime = std::chrono::seconds(2);

using Places = std::vector<std::optional<Member>>;  // by rank

Status misfit(const RankDescription& who, const std::string& what) {
  return {Code::kMismatch, "gather ranks", concat(name_of(who), " ", what)};
}

std::string value_in(const Parameters& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  return found != parameters.end() ? found->second : "not given";
}

Status check_member(const RankDescription& one, const RankDescription& leader, const Places& places) {
  if (one.size != leader.size) return misfit(one, concat("counts ", one.size, " ranks, rank 0 counts ", leader.size));
  if (one.rank >= leader.size) return misfit(one, concat("is not among ", leader.size, " ranks"));
  if (const auto& other = places[static_cast<size_t>(one.rank)]) {
    return misfit(one, concat("is there twice: once more on ", other->description.host));
  }
  if (one.version != leader.version) return misfit(one, concat("is tcpx ", one.version, ", rank 0 is ", leader.version));
  std::set<std::string> names;
  for (const auto& [name, value] : one.options) names.insert(name);
  for (const auto& [name, value] : leader.options) names.insert(name);
  for (const std::string& name : names) {
    const std::string here = value_in(leader.options, name), there = value_in(one.options, name);
    if (here != there) return misfit(one, concat("has ", name, " ", there, ", rank 0 has ", here));
  }
  return Status::ok();
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

Status check_addresses(const std::vector<Member>& members) {
  const std::string& host = members.front().description.host;
  const bool one_host =
      std::all_of(members.begin(), members.end(), [&](const Member& member) { return member.description.host == host; });
  for (const Member& member : members) {
    if (one_host || !is_loopback(member.address)) continue;
    return {Code::kInvalidArgument, "gather ranks",
            concat(name_of(member.description), " came from ", member.address,
                   ", where no other host reaches it: give the address of rank 0's host that the others use (--rendezvous)")};
  }
  return Status::ok();
}

Status missing_ranks(const Places& places, const Status& why) {
  std::vector<size_t> missing;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (!places[rank]) missing.push_back(rank);
  }
  return {why.code(), "gather ranks",
          concat(missing.size() == 1 ? "rank " : "ranks ", joined(missing), " of ", places.size(), " did not come (", why.detail(), ")")};
}

/// Takes in one member after the other. @return an error that ends the gathering
Status fill_places(BootstrapServer& server, const RankDescription& leader, Deadline deadline, Places& places) {
  const Parameters mine = encode_description(leader);
  for (size_t come = 0; come < places.size();) {
    auto channel = server.accept(deadline);
    if (!channel.is_ok()) return missing_ranks(places, channel.status());
    const std::string peer = channel->peer().to_string();
    const auto parameters = channel->exchange_parameters(mine, {}, deadline.earlier(Deadline::after(kDescriptionTime)));
    auto description = parameters.is_ok() ? decode_description(*parameters) : parameters.status();
    if (!description.is_ok()) {
      // Some other program of ours that took this port for its own; missing ranks are named in the end.
      log(LogLevel::kWarning, "mesh: ", peer, " is no rank: ", description.status().to_string());
      continue;
    }
    if (Status status = check_member(*description, leader, places); !status.is_ok()) {
      (void)channel->finish(status, Deadline::after(kRefusalTime));
      return status;
    }
    const auto rank = static_cast<size_t>(description->rank);
    const std::string address = channel->peer().host();
    places[rank].emplace(Member{std::move(*description), address, std::move(*channel)});
    ++come;
  }
  return Status::ok();
}

// A launcher starts all ranks at about the same time. One that comes when rank 0 has gone would look for it until its deadline.
void turn_away(BootstrapServer& server, size_t missing, const Status& why) {
  const Deadline end = Deadline::after(kRefusalTime);
  for (; missing > 0; --missing) {
    auto channel = server.accept(end);
    if (!channel.is_ok()) return;
    (void)channel->finish(why, end);
  }
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

std::string name_of(const RankDescription& description) {
  return concat("rank ", description.rank, " (", description.host, ", ", description.memory, ")");
}

Result<std::vector<Member>> gather_members(BootstrapServer& server, const RankDescription& leader, Deadline deadline) {
  Places places(static_cast<size_t>(leader.size));
  Status status = fill_places(server, leader, deadline, places);
  std::vector<Member> members;
  for (auto& place : places) {
    if (place) members.push_back(std::move(*place));
  }
  if (status.is_ok()) status = check_addresses(members);
  if (status.is_ok()) return members;
  for (Member& member : members) (void)member.channel.finish(status, Deadline::after(kRefusalTime));
  const size_t come = members.size() + 1;  // with the one that does not fit
  if (status.code() == Code::kMismatch && come < places.size()) turn_away(server, places.size() - come, status);
  return status;
}

Result<BootstrapChannel> join_mesh(const std::string& host, uint16_t port, const RankDescription& mine, Deadline deadline,
                                   const std::atomic<bool>* stop) {
  auto channel = bootstrap_connect(host, port, deadline, stop);
  if (!channel.is_ok()) return channel.status();
  const auto leader = channel->exchange_parameters(encode_description(mine), {}, deadline);
  if (!leader.is_ok()) return leader.status();
  return channel;
}

}  // namespace tcpx::mesh
