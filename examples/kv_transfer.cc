// Prefill hands the KV cache of a request to decode: 4096 blocks of 32 KiB, scattered over the pages of both ends, in one write.
// The decode side makes no call for it: it polls for notifications, and the one that names the request arrives after the data.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tcpx/endpoint.h"
#include "tcpx/help.h"

namespace {
using namespace tcpx;
using std::chrono::steady_clock, std::chrono::minutes;
constexpr size_t kBlocks = 4096, kBlockWords = 4096, kBlockBytes = kBlockWords * 8, kPages = kBlocks + 512;
constexpr auto content = [](uint64_t block, uint64_t word) { return (block * kBlockWords + word + 1) * 0x9e3779b97f4a7c15u; };
constexpr char kUsage[] = "usage: kv_transfer [--server | --connect HOST:PORT]: decode, prefill; without options both, here\n";
/// Decode's message to prefill: the location of its pages, and the page for each block.
struct Request {
  RemoteSlot slot;
  uint32_t page_of[kBlocks];
};

void interrupted(int signal) {
  constexpr char kText[] = "interrupted\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(128 + signal);
}

void must(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "FAILED: %s\n%s\n", status.to_string().c_str(), help_lines(status).c_str());
  std::quick_exit(1);
}

template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(*result);
}

LocalRange registered(Endpoint& endpoint, void* data, size_t bytes) {
  return {must(endpoint.register_memory(data, bytes)), data, bytes};
}

std::vector<uint32_t> permuted_pages(uint32_t seed) {
  std::vector<uint32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0u);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
  return pages;
}

void prefill(const std::string& host, int port) {
  std::vector<uint64_t> cache(kPages * kBlockWords);
  Request request;
  const auto endpoint = must(Endpoint::create());  // destroyed before the memory that is registered with it
  const ConnId conn = must(endpoint->connect(host, 0, port));
  const LocalRange range = registered(*endpoint, &request, sizeof request);
  must(endpoint->recv(conn, {&range, 1}));
  const LocalRange pool = registered(*endpoint, cache.data(), cache.size() * 8);
  const std::vector<uint32_t> pages = permuted_pages(2);
  std::vector<LocalRange> from;
  std::vector<RemoteRange> to;
  for (size_t block = 0; block < kBlocks; ++block) {
    from.push_back({pool.memory, &cache[pages[block] * kBlockWords], kBlockBytes});
    to.push_back({request.slot, uint64_t{request.page_of[block]} * kBlockBytes});
  }
  must(endpoint->write(conn, from, to));  // to warm up
  for (size_t block = 0; block < kBlocks; ++block)
    for (size_t word = 0; word < kBlockWords; ++word) cache[pages[block] * kBlockWords + word] = content(block, word);
  const NotifyMsg message{.name = "request-17", .msg = "4096 blocks of 32 KiB"};
  const auto start = steady_clock::now();
  must(endpoint->write(conn, from, to, {.notify = &message}));
  const double seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  const double gb = kBlocks * kBlockBytes / 1e9;
  std::printf("prefill: %zu scattered blocks in place after %.1f ms, %.2f GB/s\n", kBlocks, seconds * 1e3, gb / seconds);
}

bool decode(bool alone) {
  std::vector<uint64_t> cache(kPages * kBlockWords, 0);
  Request request;
  const auto endpoint = must(Endpoint::create({.listen_address = alone ? "127.0.0.1" : ""}));
  const auto here = must(Endpoint::read_metadata(endpoint->get_metadata()));
  std::fprintf(stderr, "listening for kv_transfer --connect %s:%d\n", here.ip.c_str(), here.port);
  std::thread other = alone ? std::thread(prefill, here.ip, here.port) : std::thread();
  const ConnId conn = must(endpoint->accept(minutes(10))).conn;
  request.slot = must(endpoint->advertise(conn, registered(*endpoint, cache.data(), cache.size() * 8)));
  const std::vector<uint32_t> pages = permuted_pages(1);
  std::copy_n(pages.begin(), kBlocks, request.page_of);
  const LocalRange range = registered(*endpoint, &request, sizeof request);
  must(endpoint->send(conn, {&range, 1}));

  const std::vector<NotifyMsg> messages = endpoint->wait_notifs(minutes(1));
  if (messages.empty()) must(Status(Code::kTimeout, "wait for the request", "no notification"));
  size_t wrong = 0;  // in words, including pages that belong to others
  for (size_t i = 0; i < kPages; ++i) {
    const uint64_t* page = &cache[pages[i] * kBlockWords];
    for (size_t word = 0; word < kBlockWords; ++word) wrong += page[word] != (i < kBlocks ? content(i, word) : 0);
  }
  std::printf("decode:  %s is here: %zu of %zu words wrong\n", messages[0].name.c_str(), wrong, cache.size());
  if (other.joinable()) other.join();
  const bool passed = wrong == 0 && messages[0].name == "request-17";
  std::puts(passed ? "PASSED: every block is where it belongs" : "FAILED");
  return passed;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, interrupted);
  std::signal(SIGTERM, interrupted);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // an interrupt keeps the lines printed so far
  const std::string option = argc > 1 ? argv[1] : "", peer = argc > 2 ? argv[2] : "";
  if (argc == 1 || (argc == 2 && option == "--server")) return decode(argc == 1) ? 0 : 1;
  const size_t colon = peer.rfind(':');
  if (argc == 3 && option == "--connect" && colon != peer.npos) {
    prefill(peer.substr(0, colon), std::atoi(peer.c_str() + colon + 1));
    return 0;  // decode checks the data
  }
  std::fputs(kUsage, option == "--help" ? stdout : stderr);
  return option == "--help" ? 0 : 2;
}
