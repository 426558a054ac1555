// An endpoint as the Python files see it: plain numbers, bytes and tuples. Waits look at Python's signals, and no call holds the
// interpreter lock while the library works.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "python/src/accept_filter.h"
#include "python/src/core_operation.h"
#include "python/src/ranges.h"
#include "python/src/regions.h"
#include "tcpx/endpoint.h"

namespace tcpx::python {

namespace nb = nanobind;

/// What every operation is given, as the Python files write it.
struct Options {
  std::optional<double> timeout;    // seconds
  std::optional<uintptr_t> stream;  // cudaStream_t
  std::optional<nb::bytes> notify;
  bool completion_event = false;
};

/// Numbers of blocks of a block table, or of ranges, contiguous in host memory.
using BlockIds = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class CoreEndpoint {
 public:
  using Milliseconds = std::chrono::milliseconds;
  enum class Kind : int { kSend = 0, kRecv = 1, kWrite = 2, kRead = 3 };

  /// @param filter asked about clients; may be null
  CoreEndpoint(EndpointConfig config, std::shared_ptr<AcceptFilter> filter);
  ~CoreEndpoint();
  void close();
  bool closed() const { return shared_->use() == nullptr; }

  nb::bytes metadata() const;
  uint64_t connect(const std::string& ip, int gpu, int port, double timeout) const;
  uint64_t connect_metadata(const nb::bytes& metadata, double timeout) const;
  /// @return nullopt at the timeout
  std::optional<nb::tuple> accept(double timeout) const;
  void start_accepting() const;
  void remove(uint64_t conn) const;

  /// Keeps the registration of a range while it lives.
  struct Hold {
    ~Hold();
    std::shared_ptr<BufferRegistration> region;
  };
  /// @return nullptr: not all of the range is registered
  std::unique_ptr<Hold> hold(uintptr_t data, size_t bytes) const;
  void add_region(uintptr_t data, size_t bytes);
  /// Takes back one `add_region`. Operations and slots that use the memory keep it registered, if this does not `wait` for them.
  void drop_region(uintptr_t data, size_t bytes, bool wait, std::optional<double> timeout);
  /// A range of the memory that `add_region` was called for with exactly `region`: the slot does not end with any other.
  /// @param access a SlotAccess. @param ends_after seconds
  nb::bytes advertise(std::optional<uint64_t> conn, std::pair<uintptr_t, size_t> region, uintptr_t data, size_t bytes,
                      std::optional<uintptr_t> stream, int access, std::optional<double> ends_after, uint32_t uses) const;
  bool is_advertised(const nb::bytes& slot) const;
  /// Ends one advertisement, unless it has ended already, as all have when the endpoint is closed.
  void withdraw(const nb::bytes& slot) const;

  /// One range. @return nullptr: its memory is not registered
  std::shared_ptr<CoreOperation> start(int kind, uint64_t conn, uintptr_t data, size_t bytes,
                                       const std::optional<nb::bytes>& slot, uint64_t offset, const Options& options) const;
  /// Many ranges. @return nullptr: memory of one is not registered
  std::shared_ptr<CoreOperation> start_many(int kind, uint64_t conn, const Ranges& ranges, const Options& options) const;
  /// Keeps its memory registered.
  struct Plan {
    ~Plan();
    TransferPlan ranges;
    std::vector<std::shared_ptr<BufferRegistration>> regions;
  };
  /// @return nullptr: memory of one is not registered
  std::unique_ptr<Plan> prepare(const Ranges& ranges) const;
  /// Ranges of a plan: those of the numbers in their order, or all.
  std::shared_ptr<CoreOperation> start_plan(int kind, uint64_t conn, const Plan& plan, const std::optional<BlockIds>& numbers,
                                            const Options& options) const;
  /// Blocks of `bytes` bytes each: number local[i] of the memory at `data`, of `count` blocks, and remote[i] of the slot, which
  /// begins `offset` bytes into the advertised range and has `remote_count`.
  std::shared_ptr<CoreOperation> start_blocks(int kind, uint64_t conn, uintptr_t data, size_t bytes, uint64_t count,
                                              const BlockIds& local, const nb::bytes& slot, uint64_t offset,
                                              uint64_t remote_count, const BlockIds& remote, const Options& options) const;

  void notify(uint64_t conn, const nb::bytes& name, const nb::bytes& text) const;
  /// @return tuples of connection, name and text
  nb::list notifications(double timeout) const;
  int event_fd() const;
  nb::dict stats() const;
  std::string flight_record() const;
  std::string metrics() const;

 private:
  uint64_t set_up(std::function<Result<ConnId>(Endpoint&)> attempt) const;
  std::shared_ptr<Endpoint> use() const;
  struct Registered {
    std::vector<LocalRange> ranges;
    std::vector<std::shared_ptr<BufferRegistration>> regions;
  };
  /// @return nullopt: memory of one is not
  std::optional<Registered> registered(const LocalList& local) const;
  std::shared_ptr<CoreOperation> start_ranges(Endpoint& endpoint, int kind, uint64_t conn, std::span<const LocalRange> local,
                                              std::span<const RemoteRange> remote, const Options& options,
                                              std::vector<std::shared_ptr<BufferRegistration>> regions) const;
  std::shared_ptr<CoreOperation> started(Result<OperationId> id, std::vector<std::shared_ptr<BufferRegistration>> regions) const;

  std::shared_ptr<AcceptFilter> filter_;
  std::shared_ptr<SharedEndpoint> shared_;
  mutable Regions regions_;
};

}  // namespace tcpx::python
