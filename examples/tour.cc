// The samples of docs/cpp.md as a program: both ends in this process, over host memory. Exit code 1 if bytes differ.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tcpx/endpoint.h"
#include "tcpx/help.h"

using namespace tcpx;

namespace {

constexpr size_t kBlockBytes = 4096, kBlocks = 64;

/// Ends the program with the error of what failed, and with what its name means.
void must(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "FAILED: %s\n%s\n", status.to_string().c_str(), help_lines(status).c_str());
  std::quick_exit(1);
}

/// The same, or the value.
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(*result);
}

/// Passes a failure on instead.
Result<std::string> address_in(std::span<const uint8_t> metadata) {
  TCPX_ASSIGN_OR_RETURN(const Endpoint::PeerAddress peer, Endpoint::read_metadata(metadata));
  return peer.ip + ":" + std::to_string(peer.port);
}

/// Looks whether an operation has ended, without waiting for it.
bool has_ended(Endpoint& endpoint, OperationId id) {
  const OperationAnswer answer = endpoint.poll(id);
  if (answer.state == OperationState::kPending) return false;
  must(answer.status);  // kFailed: why; kDone and kUnknown: ok
  return true;
}

std::vector<char> pattern(size_t bytes) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>((i * 2654435761u >> 13) + 1);
  return data;
}

/// Ends the program if a block of `to` differs from one of `from`.
void must_be_equal(const std::vector<char>& to, size_t to_block, const std::vector<char>& from, size_t from_block) {
  for (size_t i = 0; i < kBlockBytes; ++i) {
    if (to[to_block * kBlockBytes + i] == from[from_block * kBlockBytes + i]) continue;
    std::printf("FAILED: byte %zu of block %zu differs\n", i, to_block);
    std::quick_exit(1);
  }
}

}  // namespace

int main() {
  std::vector<char> cache(kBlocks * kBlockBytes), computed = pattern(kBlocks * kBlockBytes), copy(kBlockBytes);

  EndpointConfig config;
  config.listen_address = "127.0.0.1";  // only for this tour: the default is every address of this machine
  config.operation_timeout = std::chrono::seconds(10);
  const auto server = must(Endpoint::create(config));
  const auto client = must(Endpoint::create(config));

  const std::vector<uint8_t> metadata = server->get_metadata();  // travels by any channel
  std::printf("the server listens at %s\n", must(address_in(metadata)).c_str());

  auto accepting = std::async(std::launch::async, [&] { return must(server->accept()).conn; });
  const ConnId conn = must(client->add_remote_endpoint(metadata));
  const ConnId back = accepting.get();  // the same connection, as the server names it

  const MemoryId pages = must(server->register_memory(cache.data(), cache.size()));
  const RemoteSlot slot = must(server->advertise(back, {pages, cache.data(), cache.size()}));  // travels, too

  const MemoryId mine = must(client->register_memory(computed.data(), computed.size()));
  const MemoryId other = must(client->register_memory(copy.data(), copy.size()));
  const NotifyMsg done{.name = "request 7", .msg = "block 5"};
  must(client->write(conn, {mine, computed.data(), kBlockBytes}, {slot, 5 * kBlockBytes}, {.notify = &done}));
  must(client->read(conn, {other, copy.data(), kBlockBytes}, {slot, 5 * kBlockBytes}));

  for (const NotifyMsg& message : server->wait_notifs()) {  // its block is in place by now
    std::printf("%s: %s\n", message.name.c_str(), message.msg.c_str());
  }
  must_be_equal(cache, 5, computed, 0);
  must_be_equal(copy, 0, computed, 0);

  const LocalRange out{mine, &computed[kBlockBytes], 3 * kBlockBytes};
  const std::vector<LocalRange> in{{pages, &cache[0], kBlockBytes}, {pages, &cache[8 * kBlockBytes], 2 * kBlockBytes}};
  const OperationId receiving = must(server->recv_async(back, in));
  must(client->send(conn, out));
  must(server->wait(receiving));
  must_be_equal(cache, 0, computed, 1);
  must_be_equal(cache, 8, computed, 2);
  must_be_equal(cache, 9, computed, 3);

  std::vector<OperationId> pending;
  for (size_t block = 20; block < 30; ++block) {
    const LocalRange from{mine, &computed[block * kBlockBytes], kBlockBytes};
    pending.push_back(must(client->write_async(conn, from, {slot, block * kBlockBytes})));
  }
  while (!pending.empty()) std::erase_if(pending, [&](OperationId id) { return has_ended(*client, id); });
  for (size_t block = 20; block < 30; ++block) must_be_equal(cache, block, computed, block);

  const TransferPlan plan = must(client->prepare_blocks({mine, computed.data(), computed.size()}, {slot}, kBlockBytes));
  const std::vector<uint32_t> here{7, 8, 11}, there{63, 0, 31};
  must(client->wait(must(client->write_async(conn, plan, here, there))));
  for (size_t i = 0; i < here.size(); ++i) must_be_equal(cache, there[i], computed, here[i]);

  const Status late = client->recv(conn, {other, copy.data(), 1}, {.timeout = std::chrono::milliseconds(100)});
  if (late.code() == Code::kTimeout) std::printf("as expected: %s\n%s\n", late.to_string().c_str(), help_lines(late).c_str());

  must(server->withdraw(slot));
  const Status refused = client->write(conn, {mine, computed.data(), kBlockBytes}, {slot});
  const bool passed = late.code() == Code::kTimeout && refused.code() == Code::kNotFound;

  must(client->remove_connection(conn));
  must(client->deregister(mine));
  must(server->deregister(pages));
  std::puts(passed ? "PASSED: every byte is where it belongs" : "FAILED");
  return passed ? 0 : 1;
}
