#include "tests/support/flip_storm.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tests/support/flip_seed.h"
#include "tests/support/flipped_wire.h"
#include "tests/support/verbs.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

constexpr const char *kHarmless = "harmless", *kCorruptOperation = "operation corrupt", *kBroken = "connection broken",
                     *kDeadline = "deadline passed";
constexpr std::byte kUntouched{0xee};
constexpr size_t kMostBatches = 200;  // without a flip, though one is due
constexpr size_t kConnectionsPerEndpoint = 256;
constexpr size_t kFillBytes = size_t{1} << 20;

}  // namespace

/// One transfer, into a zone of the target's memory that is its own.
struct FlipStorm::Move {
  OperationKind verb = OperationKind::kWrite;
  int from = 0;                                                     // the side whose bytes move
  std::vector<std::pair<size_t, size_t>> source = {}, target = {};  // offset and bytes
  std::optional<Result<OperationId>> sent, received;                // of a send; else one of both
  Status sent_status, status;  // `status` is of the end that knows that the bytes are in place
};

EndpointConfig FlipStorm::config() {
  EndpointConfig config = loopback_config();
  config.same_host = false;
  config.inline_bytes = kInlineBytes;
  config.operation_timeout = kTimeout;
  return config;
}

FlipStorm::FlipStorm(std::map<Variable, std::string> settings, uint64_t seed)
    : settings_(std::move(settings)), seed_(seed), random_(seed) {
  allow_log("");  // each broken connection is logged
  make_sides();
}

std::unique_ptr<Endpoint> FlipStorm::make_endpoint() const {
  for (const auto& [variable, value] : settings_) EXPECT_TRUE(environment_set(variable, value).is_ok());
  auto endpoint = Endpoint::create(config());
  for (const auto& [variable, value] : settings_) EXPECT_TRUE(environment_set(variable, "").is_ok());
  return std::move(*endpoint);
}

FlipStorm::~FlipStorm() {
  (void)FlippedWire::disarm();
}

void FlipStorm::make_sides() {
  for (Side& side : sides_) {
    side.source.reset();
    side.target.reset();
    side = Side{};
    side.endpoint = make_endpoint();
    side.source = std::make_unique<Memory>(*side.endpoint, kZoneBytes);
    for (std::byte& byte : side.source->bytes()) byte = static_cast<std::byte>(random_());
    side.target = std::make_unique<Memory>(*side.endpoint, kZones * kZoneBytes);
    side.source_slot = side.endpoint->advertise(side.source->whole()).value();
    side.target_slot = side.endpoint->advertise(side.target->whole()).value();
  }
  ASSERT_TRUE(sides_[1].endpoint->start_accepting().is_ok());
  connections_ = 0;
}

void FlipStorm::arm(uint64_t bytes, uint64_t reads) {
  const uint64_t random = random_();
  random_() % 2 == 0 ? FlippedWire::arm_byte(random_() % bytes, random) : FlippedWire::arm_read(random_() % reads, random);
}

// The accepting end learns of the connection by its first notification. @return false: there is none
bool FlipStorm::connect() {
  if (++connections_ > kConnectionsPerEndpoint) make_sides();
  auto& [a, b] = sides_;
  const auto conn = a.endpoint->connect("127.0.0.1", 0, port_of(*b.endpoint), kTimeout);
  if (!conn.is_ok()) return false;
  a.conn = *conn;
  const std::string greeting = concat("greeting ", ++greetings_);
  (void)a.endpoint->notify(a.conn, {.name = "hello", .msg = greeting});
  bool met = false;
  for (const auto end = std::chrono::steady_clock::now() + kTimeout;
       !met && alive(a) && std::chrono::steady_clock::now() < end;) {
    for (const NotifyMsg& heard : b.endpoint->wait_notifs(milliseconds(20))) {
      if (heard.name != "hello") continue;  // of an earlier connection
      met = heard.msg == greeting;
      if (met) b.conn = heard.conn;
    }
  }
  if (!met) {
    (void)a.endpoint->remove_connection(a.conn);
    return false;
  }
  for (Side& side : sides_) side.notified = side.heard = 0;
  return connected_ = true;
}

void FlipStorm::disconnect() {
  for (Side& side : sides_) {
    if (connected_) (void)side.endpoint->remove_connection(side.conn);
    for (const ConnectionStats& rest : side.endpoint->stats().connections) {
      if (!rest.alive) (void)side.endpoint->remove_connection(rest.conn);
    }
  }
  connected_ = false;
}

// One range or some, with gaps between them.
std::vector<std::pair<size_t, size_t>> FlipStorm::parts_of(size_t bytes) {
  std::vector<std::pair<size_t, size_t>> parts;
  for (size_t offset = 0; bytes > 0;) {
    const size_t part = parts.size() == 2 || random_() % 2 == 0 ? bytes : 1 + random_() % bytes;
    offset += random_() % 64;
    parts.emplace_back(offset, part);
    bytes -= part;
    offset += part;
  }
  return parts;
}

void FlipStorm::start(Move& move, size_t zone, bool is_last) {
  do {
    move.verb = kVerbs[random_() % std::size(kVerbs)];
  } while (is_last && move.verb == OperationKind::kSend);
  move.from = static_cast<int>(random_() % 2);
  const size_t most = random_() % 2 == 0 ? kInlineBytes : random_() % 4 != 0 ? 1000 : 8000;
  move.source = move.target = parts_of(1 + random_() % most);
  for (auto& [offset, bytes] : move.target) offset += zone * kZoneBytes + 32;
  Side &from = sides_[move.from], &to = sides_[1 - move.from];
  std::fill_n(to.target->bytes().begin() + static_cast<ptrdiff_t>(zone * kZoneBytes), kZoneBytes, kUntouched);
  const auto ranges = [](Memory& memory, const auto& parts) {
    std::vector<LocalRange> all;
    for (const auto& [offset, bytes] : parts) all.push_back(memory.range(offset, bytes));
    return all;
  };
  const auto places = [](const RemoteSlot& slot, const auto& parts) {
    std::vector<RemoteRange> all;
    for (const auto& [offset, bytes] : parts) all.push_back({slot, offset});
    return all;
  };
  const auto out = ranges(*from.source, move.source), in = ranges(*to.target, move.target);
  if (move.verb == OperationKind::kWrite) {
    move.sent = from.endpoint->write_async(from.conn, out, places(to.target_slot, move.target));
  } else if (move.verb == OperationKind::kRead) {
    move.received = to.endpoint->read_async(to.conn, in, places(from.source_slot, move.source));
  } else {
    move.received = to.endpoint->recv_async(to.conn, in);
    move.sent = from.endpoint->send_async(from.conn, out);
  }
}

void FlipStorm::check(const Move& move, size_t zone) {
  const Side &from = sides_[move.from], &to = sides_[1 - move.from];
  const auto begin = to.target->bytes().begin() + static_cast<ptrdiff_t>(zone * kZoneBytes);
  std::vector<std::byte> found(begin, begin + kZoneBytes);
  for (size_t i = 0; i < move.target.size(); ++i) {
    const auto [at, bytes] = move.target[i];
    const auto arrived = found.begin() + static_cast<ptrdiff_t>(at - zone * kZoneBytes);
    const auto sent = from.source->bytes().begin() + static_cast<ptrdiff_t>(move.source[i].first);
    if (move.status.is_ok()) {
      EXPECT_TRUE(std::equal(arrived, arrived + static_cast<ptrdiff_t>(bytes), sent))
          << name_of(move.verb) << " of " << bytes << " bytes at " << i << " is done with other bytes than were sent";
    }
    std::fill_n(arrived, bytes, kUntouched);
  }
  EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](std::byte byte) { return byte == kUntouched; }))
      << name_of(move.verb) << " wrote beside its ranges";
}

void FlipStorm::hear(Side& side, milliseconds patience) {
  const Side& peer = peer_of(side);
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (const NotifyMsg& heard : side.endpoint->wait_notifs(std::min(patience, milliseconds(20)))) {
      if (heard.conn != side.conn || heard.name == "fill") continue;
      EXPECT_EQ(heard.name, "note");
      EXPECT_EQ(heard.msg, concat("note ", ++side.heard, " of this connection")) << "a notification is lost or another one";
    }
  } while (side.heard < peer.notified && alive(side) && std::chrono::steady_clock::now() < end);
}

// A flipped length makes an end wait for the rest of a frame, of 2 MiB at most: here it is.
void FlipStorm::flush_stalled() {
  for (Side& side : sides_) {
    for (int i = 0; i < 3; ++i) (void)side.endpoint->notify(side.conn, {.name = "fill", .msg = std::string(kFillBytes, 'f')});
  }
}

// Some transfers of every kind and notifications of both ends, all under way at once, and after them one transfer that needs an answer:
// when that is done, all that was said before has been heard.
std::vector<Status> FlipStorm::batch() {
  std::vector<Move> moves(1 + random_() % (kZones - 1));
  const auto end_all = [&](size_t first) {
    const bool fills = random_() % 16 != 0;  // or nothing but the deadline ends what waits
    for (size_t zone = first; zone < moves.size(); ++zone) {
      Move& move = moves[zone];
      for (const bool sends : {true, false}) {
        const auto& id = sends ? move.sent : move.received;
        if (!id) continue;
        Endpoint& endpoint = *sides_[sends ? move.from : 1 - move.from].endpoint;
        Status status = id->status();
        if (id->is_ok()) {
          status = endpoint.wait(**id, kTimeout / 2);
          if (status.code() == Code::kTimeout && fills) flush_stalled();
          if (status.code() == Code::kTimeout) {
            const Status later = endpoint.wait(**id, kTestDeadline);
            if (later.code() != Code::kNotFound) status = later;  // else it had ended with that
          }
          EXPECT_EQ(endpoint.poll(**id).state, OperationState::kUnknown) << name_of(move.verb) << " is still pending";
        }
        (sends && move.verb == OperationKind::kSend ? move.sent_status : move.status) = std::move(status);
      }
      check(move, zone);
    }
  };
  for (size_t zone = 0; zone < moves.size(); ++zone) start(moves[zone], zone, false);
  for (Side& side : sides_) {
    for (uint64_t count = random_() % 3; count > 0; --count)
      (void)side.endpoint->notify(side.conn, {.name = "note", .msg = concat("note ", ++side.notified, " of this connection")});
  }
  end_all(0);
  moves.emplace_back();
  start(moves.back(), moves.size() - 1, true);
  end_all(moves.size() - 1);
  std::vector<Status> statuses;
  for (Move& move : moves) {
    statuses.push_back(std::move(move.sent_status));
    statuses.push_back(std::move(move.status));
  }
  const bool well = std::all_of(statuses.begin(), statuses.end(), [](const Status& status) { return status.is_ok(); });
  for (Side& side : sides_) hear(side, well && side.heard < peer_of(side).notified ? kTestDeadline : milliseconds(0));
  if (well && alive(sides_[0]) && alive(sides_[1])) {
    EXPECT_EQ(sides_[0].heard, sides_[1].notified);
    EXPECT_EQ(sides_[1].heard, sides_[0].notified);
  }
  return statuses;
}

std::string FlipStorm::classify(const std::vector<Status>& statuses) const {
  const auto any = [&](Code code) {
    return std::any_of(statuses.begin(), statuses.end(), [code](const Status& status) { return status.code() == code; });
  };
  const bool lives = alive(sides_[0]) && alive(sides_[1]);
  if (!lives) return kBroken;
  if (any(Code::kCorrupt)) return kCorruptOperation;
  if (any(Code::kTimeout)) return kDeadline;
  const bool well = std::all_of(statuses.begin(), statuses.end(), [](const Status& status) { return status.is_ok(); });
  return well ? kHarmless : "operation failed";
}

void FlipStorm::run(size_t flips) {
  while (flips > 0 && !::testing::Test::HasFailure()) {
    bool flipped = false;
    if (!connected_) {
      if (random_() % 4 == 0) arm(6000, 60);
      const bool met = connect();
      flipped = FlippedWire::disarm();
      if (!met) {
        disconnect();
        if (flipped) {
          ++counts_["set-up refused"];
          --flips;
        } else {
          ++counts_["(set-up too slow)"];
        }
        continue;
      }
    }
    if (!flipped) arm(20'000, 60);
    // One batch more than the one that the bit was flipped in: a flip at its very end shows in the next.
    std::string outcome = kHarmless, statuses;
    for (size_t count = 0, after = 0; after < 2 && (outcome == kHarmless || outcome == kCorruptOperation); ++count) {
      ASSERT_LT(count, kMostBatches) << "nothing was flipped";
      const bool before = after > 0;
      flipped = flipped || FlippedWire::has_flipped();
      const auto ends = batch();
      if (flipped || FlippedWire::has_flipped()) ++after;
      const std::string now = classify(ends);
      if (now == kHarmless) continue;
      for (const Status& status : ends) statuses += concat("\n  ", status.to_string());
      EXPECT_FALSE(before && now == kCorruptOperation) << "of a batch in which nothing was flipped:" << statuses;
      outcome = now;
    }
    if (outcome != kHarmless && outcome != kCorruptOperation) disconnect();
    flipped = FlippedWire::disarm() || flipped;
    if (!flipped) {
      EXPECT_EQ(outcome, kDeadline) << "though nothing was flipped:" << statuses;
      outcome = "(too slow without a flip)";
    } else {
      --flips;
    }
    ++counts_[outcome];
  }
  disconnect();
  print_flips(seed_, counts_);
}

}  // namespace tcpx::testing
