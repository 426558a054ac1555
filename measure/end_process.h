// The two ends of a measured connection as processes of their own, and the parent's way to ask them.
//
// An end is this same program, started anew with an environment of its own: it shares neither threads nor CUDA with the parent.
// Parent and end talk over a socket pair, one command, one answer. An end that dies, or is silent past its deadline, is an error
// that says which one and how; in no case does an end outlive its EndPair.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "measure/child.h"
#include "measure/end.h"

namespace tcpx {

/// One command for an end; which fields count depends on the call.
struct EndCommand {
  enum class Call : uint32_t { kSetUp, kConnect, kAccept, kAllocate, kPrepare, kRun, kVerify, kClose };
  Call call{};
  EndSetup setup;           ///< kSetUp
  Handle handle;            ///< kConnect
  RowSetup row;             ///< kAllocate
  uint64_t count = 0;       ///< kPrepare
  int64_t deadline_ns = 0;  ///< of the steady clock
};

struct EndAnswer {
  Code code = Code::kOk;
  char operation[128] = "";
  char detail[1024] = "";  ///< after kRun: BenchEnd::path
  Handle handle;           ///< kSetUp
  Timing timing;           ///< kRun
};

/// First argument of the program as an end; the second is the number of its socket.
inline constexpr char kEndArgument[] = "end-of-bench";
/// The life of an end. @return the exit code of its process.
int run_end(int socket);

class EndPair {
 public:
  struct Answers {
    EndAnswer leader, follower;
  };

  /// Starts both. @param overrides variables that they see differently from this process.
  /// @param stop set from outside (Ctrl-C): every wait ends with kSystem.
  /// @param by no command lasts longer than until then
  /// @param words the program that an end is and its arguments; the number of its socket is appended.
  static Result<std::unique_ptr<EndPair>> start(const EnvironmentOverrides& overrides, const std::atomic<bool>& stop, Deadline by,
                                                const std::vector<std::string>& words = {"/proc/self/exe", kEndArgument});
  EndPair(const EndPair&) = delete;
  EndPair& operator=(const EndPair&) = delete;

  /// Asks both at the same time, the follower first, and waits for both answers.
  /// @return an end's own error; kPeerGone when one has died; kTimeout. Each names the end.
  Result<Answers> ask(const EndCommand& leader, const EndCommand& follower, Duration limit);
  /// The same command for both.
  Result<Answers> ask(const EndCommand& both, Duration limit) { return ask(both, both, limit); }
  /// User and system time of both processes so far. An end that the other writes to, or reads from, has no time of its own to measure.
  double cpu_seconds() const;

 private:
  struct End {
    const char* name;
    Child process;
    UniqueFd socket;
  };
  EndPair(const std::atomic<bool>& stop, Deadline by) : stop_(stop), by_(by) {}
  static Status died(End& end);

  const std::atomic<bool>& stop_;
  const Deadline by_;
  End ends_[2] = {{.name = "receiving end", .process = {}, .socket = {}}, {.name = "sending end", .process = {}, .socket = {}}};
};

}  // namespace tcpx
