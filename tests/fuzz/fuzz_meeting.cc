// A peer of this host that says what it likes where two ends meet: in the frames of the meeting, in its greeting over the Unix socket, and
// with the descriptors that it passes there. The end under test goes on over TCP or shares memory of the right size that nobody can shrink,
// and keeps no descriptor of another kind.
//
// Input: u8 flags (1: this end connects; 2: the peer's key is right; 4: the memory is right; 8: strangers come to the socket first), then for
// four frames u8 number of parameters, and for each u8 which, u8 length and a text; then u8 kinds of two descriptors, and the rest is said on
// the Unix socket in place of a greeting.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "base/unix_socket.h"
#include "endpoint/same_host.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace tcpx;  // NOLINT: a program, not a header
using Bytes = std::vector<std::byte>;

constexpr size_t kFrames = 4, kKeyBytes = 16, kGreetingBytes = 40;
constexpr std::string_view kNames[] = {"why not", "name", "key", "user namespace", "reads", "other"};
const Duration kPatience = std::chrono::seconds(5);

/// The deeds of the peer.
struct Script {
  explicit Script(fuzz::FuzzInput& input) {
    flags = input.take<uint8_t>();
    for (Parameters& frame : frames) {
      frame["why not"] = "";
      for (int count = input.take<uint8_t>() % 4; count > 0; --count) {
        const std::string_view name = kNames[input.take<uint8_t>() % std::size(kNames)];
        const auto text = input.take_bytes(input.take<uint8_t>());
        frame[std::string(name)] = {reinterpret_cast<const char*>(text.data()), text.size()};
      }
    }
    kinds = input.take<uint8_t>();
    words.assign(input.rest().begin(), input.rest().end());
    if (words.empty()) words.resize(kGreetingBytes);
  }
  bool has(int flag) const { return (flags & flag) != 0; }
  UniqueFd descriptor(int kind) const {
    if (kind == 0 && has(4)) return std::move(*SharedArea::make());
    if (kind == 0) return UniqueFd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (kind == 1) return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  int flags, kinds;
  Parameters frames[kFrames];
  Bytes words;
};

Frame receive(int fd) {
  FrameAssembler assembler;
  while (!assembler.whole()) {
    const auto room = assembler.wanted();
    const ssize_t n = ::recv(fd, room.data(), room.size(), 0);
    if (n <= 0) return {};
    FUZZ_REQUIRE(assembler.filled(static_cast<size_t>(n)).is_ok());
  }
  return assembler.take();
}

void say(int fd, const Parameters& parameters) {
  const auto bytes = encode_frame(encode_parameters(parameters).value());
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// @param key as the other end has told it in hex
Bytes greeting(const Script& script, const std::string& key) {
  Bytes words = script.words;
  if (!script.has(2)) return words;
  for (size_t i = 0; i < kKeyBytes && i < words.size() && 2 * i + 2 <= key.size(); ++i)
    words[i] = static_cast<std::byte>(std::stoi(key.substr(2 * i, 2), nullptr, 16));
  return words;
}

/// The peer of an end that listens.
void connect_to(const Script& script, int fd) {
  const auto told = decode_parameters(receive(fd));
  if (!told.is_ok() || !told->contains("name")) return;
  std::vector<ForeignFd> sockets;
  for (const bool is_peer : {false, true}) {
    if (!is_peer && !script.has(8)) continue;
    auto socket = connect_unix(told->at("name"));
    if (!socket.is_ok()) continue;
    const Bytes words = is_peer ? greeting(script, told->at("key")) : script.words;
    const UniqueFd passed = script.descriptor(script.kinds % 4);
    if (script.kinds % 4 < 3) {
      (void)send_descriptor(socket->get(), words, passed.get());
    } else {
      (void)!::send(socket->get(), words.data(), words.size(), MSG_NOSIGNAL);
    }
    sockets.push_back(std::move(*socket));
  }
  for (const Parameters& frame : script.frames) say(fd, frame);
  while (receive(fd).type == FrameType::kParameters) {
  }
}

/// The peer of an end that connects.
void listen_for(Script& script, int fd) {
  static const std::string name = concat("tcpx-fuzz-", ::getpid());
  const auto listener = listen_unix(name, 4);
  script.frames[0].try_emplace("name", name);
  script.frames[0].try_emplace("key", std::string(2 * kKeyBytes, '5'));
  (void)receive(fd);
  say(fd, script.frames[0]);
  say(fd, script.frames[1]);
  (void)receive(fd);
  ForeignFd socket = listener.is_ok() ? accept_unix(listener->get()) : ForeignFd();
  if (socket) {
    Bytes mine(kGreetingBytes);
    (void)receive_descriptor(socket.get(), mine);
    const UniqueFd first = script.descriptor(script.kinds % 4), second = script.descriptor(script.kinds / 4 % 4);
    const Bytes mark(1, std::byte{1});
    (void)send_descriptor(socket.get(), script.words, first.get());
    (void)send_descriptor(socket.get(), mark, second.get());
  }
  say(fd, script.frames[2]);
  say(fd, script.frames[3]);
  while (receive(fd).type == FrameType::kParameters) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = (set_log_level(LogLevel::kOff), true);
  (void)quiet;
  fuzz::FuzzInput input(data, size);
  Script script(input);
  int fds[2];
  FUZZ_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  FUZZ_REQUIRE(::fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
  const bool connects = script.has(1);
  std::thread peer([&script, connects, fd = fds[1]] {
    connects ? listen_for(script, fd) : connect_to(script, fd);
    ::close(fd);
  });
  {
    BootstrapChannel channel(UniqueFd(fds[0]), SocketAddress::loopback(1), "fuzz");
    const auto met = meet_on_host(channel, {.connector = connects}, Deadline::after(kPatience));
    if (met.is_ok() && met->peer != nullptr) {
      FUZZ_REQUIRE(met->peer->area && met->peer->socket && is_unix_socket(met->peer->files.get()));
      FUZZ_REQUIRE(met->peer->same_process && met->peer->own_alive() == 1);
      FUZZ_REQUIRE(connects ? script.has(4) : script.has(2) && script.words.size() >= kGreetingBytes);
    }
    if (met.is_ok()) FUZZ_REQUIRE(!met->local.empty());
    if (!met.is_ok()) FUZZ_REQUIRE(met.status().code() != Code::kTimeout);
  }
  peer.join();
  return 0;
}
