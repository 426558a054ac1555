// Every environment variable that this project reads, in one typed table. No other file calls getenv. The variables that
// launchers such as mpirun set for each process are separate: nobody sets them by hand, so the documents do not list them.
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
  kNetwork,
  kDevmemSocket,
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
  kLocalDir,
  kSecurity,
  kSecretFile,
  kTlsCert,
  kTlsKey,
  kTlsCa,
  kTlsPeers,
  kChecksum,
  kUnpackImpl,
  kUnpackBlocks,
  kLaunchDebug,
  kPerfSize,
  kPerfIters,
  kSoftPoolBytes,
  kSoftIoThreads,
  kSoftSpinUs,
  kSoftZeroCopy,
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
  const char* unit;  ///< "bytes", "ms", ...; "" for none
  int64_t min;       ///< integers: inclusive range
  int64_t max;
  int64_t default_integer;   ///< integers: value; choices: index into `choices`
  const char* default_text;  ///< texts: value; others: the default as the documents show it
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
/// The value of a text variable. A text is never malformed here; the code that interprets it reports errors.
std::string environment_text(Variable id);
bool environment_is_set(Variable id);
/// The status that reading the variable would have if its value were `value`. Texts are never refused here.
Status environment_check(const VariableInfo& info, const std::string& value);
/// Checks all variables of the table and reports the first malformed one, also when no code reads it. Programs call it at their
/// start.
Status environment_check_all();
/// All variables of this process with their values, including those that are not in the table. For programs that look for
/// mistakes.
std::vector<std::pair<std::string, std::string>> environment_snapshot();

/// Gives a variable a value that this library reads instead of the environment's, from now on and on every thread. The
/// environment itself does not change: changing it is unsafe while other threads run, and other libraries read it.
/// @param value as in the environment; empty: use the environment's value again
/// @return kBadConfig for a malformed value, as when it is read
Status environment_set(Variable id, const std::string& value);

/// Sets a variable for this process unless the user has set it. Call before threads start.
/// @return true when this call has set it
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
