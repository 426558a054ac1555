// Backend: what NIXL asks of a back-end, over one Endpoint, in the same words for every family of releases. engine.h gives it the
// virtual table that the caller expects.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "integrations/nixl/nixl_abi.h"
#include "integrations/nixl/peers.h"
#include "integrations/nixl/rates.h"
#include "tcpx/endpoint.h"

namespace tcpx::nixl {

inline constexpr char kPluginName[] = "TCPX";

class Backend;
class XferRequest;

/// Ends a back-end. In a forked child nothing ends: the threads are the parent's, and so is everything that they work on.
struct EndBackend {
  void operator()(Backend* backend) const;
};
using BackendPtr = std::unique_ptr<Backend, EndBackend>;

/// Any thread. Errors are logged here, once each.
class Backend {
 public:
  /// Takes an event of telemetry: its name, and a value. Any thread.
  using TellEvent = std::function<void(const char* name, uint64_t value)>;

  /// @param tell empty: nobody wants events. @return nullptr: the reason is in the log
  static BackendPtr create(const abi::InitParams& params, TellEvent tell);
  static std::vector<abi::MemSegment> memories() { return {abi::MemSegment::kDram, abi::MemSegment::kVram}; }

  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// @return kNotSupported: this process is a fork of the one that made the back-end, and may call nothing else
  abi::NixlStatus check_process() const;

  abi::NixlStatus register_memory(const abi::BlobDesc& range, abi::MemSegment memory, abi::Metadata*& out);
  abi::NixlStatus deregister_memory(abi::Metadata* metadata);
  abi::NixlStatus load_local(const abi::Metadata* in, abi::Metadata*& out);
  abi::NixlStatus load_remote(const abi::BlobDesc& range, const std::string& agent, abi::Metadata*& out);
  abi::NixlStatus unload(abi::Metadata* metadata);
  abi::NixlStatus public_data(const abi::Metadata* metadata, std::string& out) const;

  abi::NixlStatus connection_info(std::string& out) const;
  abi::NixlStatus load_connection_info(const std::string& agent, const std::string& info);
  abi::NixlStatus connect(const std::string& agent);
  abi::NixlStatus disconnect(const std::string& agent);

  abi::NixlStatus prepare(abi::XferOp operation, const abi::DescList<abi::MetaDesc>& local,
                          const abi::DescList<abi::MetaDesc>& remote, const std::string& agent, abi::BackendReq*& request);
  abi::NixlStatus post(abi::BackendReq* request, const abi::OptionalArgs* args);
  abi::NixlStatus check(abi::BackendReq* request);
  abi::NixlStatus release(abi::BackendReq* request);
  /// Says by the transfers that have ended how long this one will take. @return kNotSupported: none like it has ended yet
  abi::NixlStatus estimate(const abi::BackendReq* request, std::chrono::microseconds& duration, std::chrono::microseconds& error,
                           abi::CostMethod& method) const;

  abi::NixlStatus notify(const std::string& agent, const std::string& message);
  abi::NixlStatus take_notifications(abi::Notifications& out);

 private:
  Backend(std::string agent, Duration timeout, TellEvent tell, std::unique_ptr<Endpoint> endpoint);
  void give_up_users_of(MemoryId memory);
  Result<NotifyMsg> from_here(const std::string& text) const;

  const uint64_t born_in_;  // of count_forks
  const std::string agent_;
  const Duration timeout_;  // of a request
  const TellEvent tell_;
  Rates rates_;
  Mutex mutex_;
  std::set<XferRequest*> requests_ TCPX_GUARDED_BY(mutex_);  // from prepare to release, owned by NIXL
  std::unique_ptr<Endpoint> endpoint_;
  Peers peers_;
};

}  // namespace tcpx::nixl
