// Makes, fills, shares and frees GPU memory for a test in another process, as the packets on the socket say whose number is the
// argument (gpu_memory_peer.h). Ends when the socket does.
#include "tests/support/gpu_memory_peer.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "device/cuda_handles.h"
#include "device/cuda_memory_ops.h"
#include "device/gpu_pattern.h"
#include "tests/support/chunked_gpu_memory.h"

namespace {

using namespace tcpx;
using namespace tcpx::testing;

class Peer {
 public:
  explicit Peer(MemoryOps& memory) : memory_(memory) {}

  Status obey(const PeerRequest& request, PeerAnswer* answer, UniqueFd* fd) {
    switch (request.verb) {
      case PeerRequest::kMake:
        answer->id = next_;
        return make(request, answer);
      case PeerRequest::kShare: {
        const auto began = std::chrono::steady_clock::now();
        TCPX_ASSIGN_OR_RETURN(answer->share, memory_.share(made_.at(request.id).begin + request.offset, *fd));
        answer->share_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count();
        return Status::ok();
      }
      case PeerRequest::kRemap: {
        Made& made = made_.at(request.id);
        made.chunks->replace(request.chunks);
        TCPX_RETURN_IF_ERROR(made.chunks->status());
        return fill(made.device, made.chunks->address(request.chunks), made.chunks->chunk_bytes(), request.seed);
      }
      case PeerRequest::kFree:
        made_.erase(request.id);
        return Status::ok();
    }
    return Status(Code::kInvalidArgument, "obey", "no such verb");
  }

 private:
  /// Memory that this process holds.
  struct Made {
    int device = 0;
    std::byte* begin = nullptr;
    std::unique_ptr<ChunkedGpuMemory> chunks;  // or
    std::shared_ptr<void> plain;               // of cudaMalloc
  };

  Status make(const PeerRequest& request, PeerAnswer* answer) {
    TCPX_RETURN_IF_ERROR(memory_.set_current_device(request.device));
    Made made{.device = request.device};
    answer->bytes = request.bytes;
    uint64_t all = request.bytes;
    if (request.chunks != 0) {
      made.chunks = std::make_unique<ChunkedGpuMemory>(request.device, request.bytes, request.chunks,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      TCPX_RETURN_IF_ERROR(made.chunks->status());
      made.begin = made.chunks->address();
      answer->bytes = made.chunks->chunk_bytes();
      all = answer->bytes * request.chunks;
    } else {
      void* memory = nullptr;
      if (const cudaError_t error = cudaMalloc(&memory, request.bytes); error != cudaSuccess) {
        return Status(Code::kCuda, "allocate", cudaGetErrorName(error));
      }
      made.plain = std::shared_ptr<void>(memory, [](void* at) { cudaFree(at); });
      made.begin = static_cast<std::byte*>(memory);
    }
    answer->address = reinterpret_cast<uint64_t>(made.begin);
    TCPX_RETURN_IF_ERROR(fill(request.device, made.begin, all, request.seed));
    made_[next_++] = std::move(made);
    return Status::ok();
  }

  Status fill(int device, std::byte* at, uint64_t bytes, uint64_t seed) {
    auto& pattern = patterns_[device];
    if (pattern == nullptr) {
      TCPX_ASSIGN_OR_RETURN(pattern, GpuPattern::create(device, memory_));
    }
    return pattern->fill(at, bytes, seed);
  }

  MemoryOps& memory_;
  uint32_t next_ = 1;
  std::map<uint32_t, Made> made_;
  std::map<int, std::unique_ptr<GpuPattern>> patterns_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const UniqueFd socket(std::atoi(argv[1]));
  const auto memory = make_cuda_memory_ops();
  if (!memory.is_ok()) {
    std::fprintf(stderr, "gpu_memory_peer: %s\n", memory.status().to_string().c_str());
    return 77;
  }
  Peer peer(**memory);
  PeerRequest request;
  while (receive_packet(socket.get(), &request)) {
    PeerAnswer answer;
    UniqueFd fd;
    const Status status = peer.obey(request, &answer, &fd);
    if (!status.is_ok()) std::snprintf(answer.error, sizeof answer.error, "%s", status.to_string().c_str());
    if (!send_packet(socket.get(), answer, fd.get())) return 1;
  }
  return 0;
}
