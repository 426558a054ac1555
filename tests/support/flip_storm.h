// FlipStorm: two endpoints on TCP move short and long messages by every kind of operation, and a bit of what passes between them is
// flipped, now and then, anywhere from the first hello on (flipped_wire.h). Nothing may end as done with other bytes than were sent,
// write where it was not to, deliver another notification, or stay pending beyond its deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/environment.h"
#include "endpoint/operation.h"
#include "tests/support/endpoint_pair.h"

namespace tcpx::testing {

class FlipStorm {
 public:
  /// For inline messages as well as for those that a lane moves.
  static constexpr uint32_t kInlineBytes = 200;
  /// Long enough for operations that nothing hinders, and short because some flips are noticed by nothing else.
  static constexpr std::chrono::milliseconds kTimeout{400};
  static EndpointConfig config();

  /// @param settings of the environment while endpoints of `config` are made: the protection under test
  FlipStorm(std::map<Variable, std::string> settings, uint64_t seed);
  ~FlipStorm();

  /// Prints how they ended. Failures are those of the test. @param flips number of bits, one after another
  void run(size_t flips);

 private:
  static constexpr size_t kZones = 8, kZoneBytes = 16 << 10;
  struct Side {
    std::unique_ptr<Endpoint> endpoint;
    std::unique_ptr<Memory> source, target;
    RemoteSlot source_slot{}, target_slot{};
    ConnId conn{};
    uint64_t notified = 0, heard = 0;  // notifications of the peer: said, and delivered here
  };
  struct Move;

  std::unique_ptr<Endpoint> make_endpoint() const;
  void make_sides();
  bool connect();
  void disconnect();
  void arm(uint64_t bytes, uint64_t reads);
  const Side& peer_of(const Side& side) const { return &side == &sides_[0] ? sides_[1] : sides_[0]; }
  bool alive(const Side& side) const { return is_alive(*side.endpoint, side.conn); }
  std::vector<std::pair<size_t, size_t>> parts_of(size_t bytes);
  void start(Move& move, size_t zone, bool is_last);
  void check(const Move& move, size_t zone);
  std::vector<Status> batch();
  void hear(Side& side, std::chrono::milliseconds patience);
  void flush_stalled();
  std::string classify(const std::vector<Status>& statuses) const;

  const std::map<Variable, std::string> settings_;
  const uint64_t seed_;
  std::mt19937_64 random_;
  Side sides_[2];
  bool connected_ = false;
  uint64_t greetings_ = 0;
  size_t connections_ = 0;
  std::map<std::string, size_t> counts_;
};

}  // namespace tcpx::testing
