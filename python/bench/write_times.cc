// Times of Endpoint::write in C++, for overhead.py to compare Python's with: both ends in this process, host memory.
//
// usage: write_times BYTES COUNT; prints the median in microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tcpx/endpoint.h"

namespace {

using tcpx::Endpoint;

template <class T>
T must(tcpx::Result<T> result) {
  if (result.is_ok()) return std::move(result).value();
  std::fprintf(stderr, "write_times: %s\n", result.status().to_string().c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: write_times BYTES COUNT\n", stderr);
    return 2;
  }
  const size_t bytes = std::strtoull(argv[1], nullptr, 10), count = std::strtoull(argv[2], nullptr, 10);
  const auto near = must(Endpoint::create({.listen_address = "127.0.0.1"}));
  const auto far = must(Endpoint::create({.listen_address = "127.0.0.1"}));
  std::thread accepting([&] { (void)must(far->accept()); });
  const auto conn = must(near->add_remote_endpoint(far->get_metadata()));
  accepting.join();

  std::vector<char> source(bytes, 'x'), target(bytes);
  const auto source_id = must(near->register_memory(source.data(), bytes)),
             target_id = must(far->register_memory(target.data(), bytes));
  const tcpx::RemoteSlot slot = must(far->advertise({target_id, target.data(), bytes}));
  std::vector<double> microseconds;
  for (size_t i = 0; i < count + count / 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (const tcpx::Status status = near->write(conn, {source_id, source.data(), bytes}, {slot}); !status.is_ok()) {
      std::fprintf(stderr, "write_times: %s\n", status.to_string().c_str());
      return 1;
    }
    if (i >= count / 10)
      microseconds.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  if (source != target) {
    std::fputs("write_times: wrong bytes\n", stderr);
    return 1;
  }
  std::nth_element(microseconds.begin(), microseconds.begin() + static_cast<std::ptrdiff_t>(microseconds.size() / 2),
                   microseconds.end());
  std::printf("%.2f\n", microseconds[microseconds.size() / 2]);
}
