// Every environment variable this project reads, in one typed table. No other file calls getenv. Those that launchers such as
// mpirun set for each process are kept apart: nobody sets them by hand, so the documents do not list them.
//
// Absent or empty means the default. Present but malformed or out of range is an error, never the default. docs/env.md is
// generated from here (programs/env_doc).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

enum class Variable {
  kPluginPath,
  kDebug,
  kLogLevel,
  kBootstrapPort,
  kPortRange,
  kTimeoutMs,
  kNumChannels,
  kFarNics,
  kRecvWindow,
  kSendWindow,
  kChunkBytes,
  kFailover,
  kOpTimeoutMs,
  kPeerTimeoutMs,
  kInlineBytes,
  kMaxPeerBytes,
  kLocal,
  kUnpackImpl,
  kUnpackBlocks,
  kLaunchDebug,
  kPerfSize,
  kPerfIters,
  kSoftPoolBytes,
  kSoftIoThreads,
  kSoftSpinUs,
  kSoftConnectTimeoutMs,
  kSocketIfname,
  kSocketFamily,
  kNcclSocketIfname,
  kNcclSocketFamily,
  kCtrlDev,
  kTxBindings,
  kRxBindings,
  kNsocksPerThread,
  kSocketNthreads,
  kDynamicChunkSize,
  kUnixClientPrefix,
  kFlowSteeringWaitUs,
  kPortBegin,
  kPortEnd,
};

enum class VariableKind { kText, kInteger, kChoice, kPortRange };

struct VariableInfo {
  Variable id;
  const char* name;
  VariableKind kind;
  const char* unit;  ///< "bytes", "ms", ... or "" where there is none
  int64_t min;       ///< integers: inclusive range
  int64_t max;
  int64_t default_integer;   ///< integers: value; choices: index into `choices`
  const char* default_text;  ///< texts: value; else the default as the documents show it
  const char* choices;       ///< choices: "a|b|c", index = value
  const char* paragraph;
};

/// The whole table, in the order of the documents.
std::span<const VariableInfo> environment_table();
const VariableInfo& environment_info(Variable id);

/// @return kBadConfig when the variable is set but is not a decimal integer in its range.
Result<int64_t> environment_integer(Variable id);
/// @return index of the value within `choices`; kBadConfig when it is not one of them.
Result<int64_t> environment_choice(Variable id);
/// Texts are never malformed here; the code that interprets one reports its error.
std::string environment_text(Variable id);
bool environment_is_set(Variable id);
/// The status of reading the variable if this were its value. Texts are never refused here.
Status environment_check(const VariableInfo& info, const std::string& value);
/// Checks all variables of the table and reports the first malformed one, whoever reads it. Programs call it before they begin.
Status environment_check_all();
/// All variables of this process with their values, known to us or not. For programs that look for mistakes in them.
std::vector<std::pair<std::string, std::string>> environment_snapshot();

/// Gives a variable a value that this library reads instead of the environment's, from now on and on every thread. The environment
/// stays as it is: changing it is unsafe while other threads run, and code of others reads it.
/// @param value as in the environment; empty: the environment's again
/// @return kBadConfig as the readers
Status environment_set(Variable id, const std::string& value);

/// Sets a variable for this process unless the user has set it. Call before threads start.
/// @return true when it was set by this call.
bool environment_preset(Variable id, const std::string& value);

/// Rank, number of ranks, and rank within the host, as the launchers name them.
enum class LauncherVariable {
  kOmpiRank,
  kOmpiSize,
  kOmpiLocalRank,
  kPmiRank,
  kPmiSize,
  kMpiLocalRank,
  kSlurmRank,
  kSlurmSize,
  kSlurmLocalRank,
};

std::string_view launcher_variable_name(LauncherVariable id);
bool launcher_variable_is_set(LauncherVariable id);
/// @return nullopt when it is not set; kBadConfig when it is not a decimal integer.
Result<std::optional<int64_t>> launcher_integer(LauncherVariable id);

}  // namespace tcpx
