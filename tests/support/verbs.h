// The kinds of operations as data of a test: start any of them, or move bytes from one endpoint to another by any of them.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "endpoint/operation.h"
#include "tcpx/endpoint.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

/// @param remote places of a write or read, as many as ranges
inline Result<OperationId> start(Endpoint& endpoint, OperationKind kind, ConnId conn, std::span<const LocalRange> ranges,
                                 std::span<const RemoteRange> remote = {}, const SubmitOptions& options = {}) {
  switch (kind) {
    case OperationKind::kSend:
      return endpoint.send_async(conn, ranges, options);
    case OperationKind::kRecv:
      return endpoint.recv_async(conn, ranges, options);
    case OperationKind::kWrite:
      return endpoint.write_async(conn, ranges, remote, options);
    case OperationKind::kRead:
      break;
  }
  return endpoint.read_async(conn, ranges, remote, options);
}

/// Ways to move bytes from one end to the other.
inline constexpr OperationKind kVerbs[] = {OperationKind::kSend, OperationKind::kWrite, OperationKind::kRead};

struct End {
  Endpoint& endpoint;
  ConnId conn;
  std::vector<LocalRange> ranges;

  Status wait(const Result<OperationId>& id) const { return id.is_ok() ? endpoint.wait(*id, kTestDeadline) : id.status(); }
  /// One for each range, for the other end.
  std::vector<RemoteRange> advertised() const {
    std::vector<RemoteRange> places;
    for (const LocalRange& range : ranges) places.push_back({endpoint.advertise(conn, range).value(), 0});
    return places;
  }
};

/// A send and its receive, or a write by `from`, or a read by `to`; the ranges of both are of the same lengths for the latter two.
/// @return how it went at the sending and at the receiving end; a write or read has one end
inline std::pair<Status, Status> move(OperationKind verb, const End& from, const End& to) {
  if (verb == OperationKind::kSend) {
    const auto received = to.endpoint.recv_async(to.conn, to.ranges);
    const Status sent = from.wait(from.endpoint.send_async(from.conn, from.ranges));
    return {sent, to.wait(received)};
  }
  const Status status = verb == OperationKind::kWrite
                            ? from.wait(start(from.endpoint, verb, from.conn, from.ranges, to.advertised()))
                            : to.wait(start(to.endpoint, verb, to.conn, to.ranges, from.advertised()));
  return {status, status};
}

}  // namespace tcpx::testing
