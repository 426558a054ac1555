// The other end of a message stream as a process of its own, which uses no GPU and starts fast.
//
//   stream_peer recv TOTAL MOMENT MICROSECONDS            prints "handle HEX", then receives and compares
//   stream_peer send TOTAL MOMENT MICROSECONDS HEX        connects, then sends
//
// MOMENT is the start of its remaining lifetime: its "start", "connected", or "idle" (as connected, but no message is ever
// posted); with "never" it lives forever. It prints "dies NANOSECONDS", the time on the monotonic clock, before that; the
// kernel then kills it in any state. After TOTAL messages, of which 0 means no end, it prints "all" and waits for its
// standard input to end.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "net/soft/connector.h"
#include "net/soft/listener.h"
#include "tests/support/hex_text.h"
#include "tests/support/message_stream.h"
#include "tests/support/ok.h"
#include "tests/support/soft_wire.h"

namespace {

using namespace tcpx;
using namespace tcpx::testing;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void die_after(std::chrono::microseconds delay) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer;
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) std::exit(1);
  const auto at =
      std::chrono::duration_cast<std::chrono::nanoseconds>((std::chrono::steady_clock::now() + delay).time_since_epoch());
  say(concat("dies ", at.count()));
  itimerspec spec{};
  spec.it_value.tv_sec = at.count() / 1'000'000'000;
  spec.it_value.tv_nsec = at.count() % 1'000'000'000;
  if (::timer_settime(timer, TIMER_ABSTIME, &spec, nullptr) != 0) std::exit(1);
}

struct Peer {
  StreamLimits limits;
  std::string moment;
  std::chrono::microseconds delay;

  void reached(const char* what) const {
    if (moment == what) die_after(delay);
  }
  template <class Stream>
  void run(Stream stream) const {
    reached("connected");
    if (moment == "idle") {
      die_after(delay);
      for (;;) ::pause();
    }
    if (const Status status = run_stream(stream, [&] { return stream.finished() == limits.total; }); !status.is_ok()) {
      std::fprintf(stderr, "stream_peer: %s\n", status.to_string().c_str());
      std::exit(1);
    }
    say("all");
    while (std::getchar() != EOF) {
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  ::alarm(120);  // never outlives a parent that died
  const uint64_t total = std::strtoull(argv[2], nullptr, 10);
  const Peer peer = {.limits = {.window = kQueueDepth, .total = total != 0 ? total : StreamLimits{}.total},
                     .moment = argv[3],
                     .delay = std::chrono::microseconds(std::atol(argv[4]))};
  peer.reached("start");
  const auto memory = make_host_memory_ops();
  const auto io = must(soft::IoPool::create(1));
  const Deadline soon = Deadline::after(std::chrono::seconds(20));
  if (argc == 6) {
    const auto handle = handle_from_hex(argv[5]);
    if (!handle) return 2;
    auto sockets = must(connect_to_listener(must(soft::decode_handle(*handle)), {SocketAddress::loopback(0)}, soon));
    const auto comm =
        must(soft::SoftSendComm::create(*memory, 0, io, std::make_shared<soft::StagingPool>(*memory, 0), std::move(sockets)));
    peer.run(must(SendStream::create(*memory, *comm, MemoryType::kHost, peer.limits)));
    return 0;
  }
  const auto pool = must(soft::PagePool::create(*memory, 0, 4 << 20));
  const soft::HandleInfo info = {
      .addresses = {SocketAddress::loopback(0)}, .data_sockets = 4, .chunk_bytes = kStreamChunkBytes, .cookie = {}};
  const auto listener = must(soft::SoftListener::create(info, io));
  say("handle " + to_hex(listener->handle()));
  std::optional<soft::ConnectedSockets> sockets;
  while (!(sockets = listener->try_accept())) {
    if (soon.expired()) return 1;
    ::sched_yield();
  }
  const auto comm = must(soft::SoftRecvComm::create(*memory, 0, io, pool, std::move(*sockets)));
  peer.run(must(RecvStream::create(*memory, *comm, *pool, MemoryType::kCuda, peer.limits)));
  return 0;
}
