// The two functions that NIXL looks for in libplugin_TCPX.so, and the engine behind them in the form that the calling release
// expects.
#include <exception>
#include <memory>

#include "integrations/nixl/backend.h"
#include "integrations/nixl/family.h"
#include "integrations/nixl/outcome.h"
#include "integrations/nixl/parameters.h"

namespace tcpx::nixl {
namespace {

using abi::NixlStatus;

// No exception may leave a method: between two C++ runtimes it would end the process.
template <class Body>
NixlStatus guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return said(Status(Code::kInternal, "NIXL call", error.what()), kPluginName);
  }
}

/// Backend with the virtual table of a family.
template <class Base>
class FamilyEngine final : public Base {
 public:
  explicit FamilyEngine(const abi::InitParams& params) : Base(params), backend_(Backend::create(params, event_sink())) {
    this->failed_ = backend_ == nullptr;
  }

  bool supports_remote() const override { return true; }
  bool supports_local() const override { return true; }
  bool supports_notifications() const override { return true; }
  std::vector<abi::MemSegment> memories() const override { return Backend::memories(); }

  NixlStatus register_memory(const abi::BlobDesc& range, const abi::MemSegment& memory, abi::Metadata*& out) override {
    return ask([&] { return backend_->register_memory(range, memory, out); });
  }
  NixlStatus deregister_memory(abi::Metadata* metadata) override {
    return ask([&] { return backend_->deregister_memory(metadata); });
  }
  NixlStatus connect(const std::string& agent) override {
    return ask([&] { return backend_->connect(agent); });
  }
  NixlStatus disconnect(const std::string& agent) override {
    return ask([&] { return backend_->disconnect(agent); });
  }
  NixlStatus unload(abi::Metadata* metadata) override {
    return ask([&] { return backend_->unload(metadata); });
  }
  NixlStatus prepare(const abi::XferOp& operation, const abi::DescList<abi::MetaDesc>& local,
                     const abi::DescList<abi::MetaDesc>& remote, const std::string& agent, abi::BackendReq*& request,
                     const abi::OptionalArgs*) const override {
    return ask([&] { return backend_->prepare(operation, local, remote, agent, request); });
  }
  NixlStatus post(const abi::XferOp&, const abi::DescList<abi::MetaDesc>&, const abi::DescList<abi::MetaDesc>&,
                  const std::string&, abi::BackendReq*& request, const abi::OptionalArgs* args) const override {
    return ask([&] { return backend_->post(request, args); });
  }
  NixlStatus check(abi::BackendReq* request) const override {
    return ask([&] { return backend_->check(request); });
  }
  NixlStatus release(abi::BackendReq* request) const override {
    return ask([&] { return backend_->release(request); });
  }
  NixlStatus public_data(const abi::Metadata* metadata, std::string& out) const override {
    return ask([&] { return backend_->public_data(metadata, out); });
  }
  NixlStatus connection_info(std::string& out) const override {
    return ask([&] { return backend_->connection_info(out); });
  }
  NixlStatus load_connection_info(const std::string& agent, const std::string& info) override {
    return ask([&] { return backend_->load_connection_info(agent, info); });
  }
  NixlStatus load_remote(const abi::BlobDesc& range, const abi::MemSegment&, const std::string& agent,
                         abi::Metadata*& out) override {
    return ask([&] { return backend_->load_remote(range, agent, out); });
  }
  NixlStatus load_local(abi::Metadata* in, abi::Metadata*& out) override {
    return ask([&] { return backend_->load_local(in, out); });
  }
  NixlStatus take_notifications(abi::Notifications& out) override {
    return ask([&] { return backend_->take_notifications(out); });
  }
  NixlStatus notify(const std::string& agent, const std::string& message) const override {
    return ask([&] { return backend_->notify(agent, message); });
  }
  NixlStatus query() const override { return NixlStatus::kNotSupported; }
  NixlStatus estimate(const abi::XferOp&, const abi::DescList<abi::MetaDesc>&, const abi::DescList<abi::MetaDesc>&,
                      const std::string&, abi::BackendReq* const& request, std::chrono::microseconds& duration,
                      std::chrono::microseconds& error, abi::CostMethod& method, const void*) const override {
    return ask([&] { return backend_->estimate(request, duration, error, method); });
  }

 private:
  template <class Body>
  NixlStatus ask(Body body) const noexcept {
    return guarded([&] {
      const NixlStatus here = backend_->check_process();
      return here == NixlStatus::kSuccess ? body() : here;
    });
  }

  // Empty where nobody would take the events.
  Backend::TellEvent event_sink() {
    if constexpr (Base::kExportsTelemetry) {
      if (this->wants_telemetry_) return [this](const char* name, uint64_t value) { this->add_telemetry(name, value); };
    }
    return {};
  }

  const BackendPtr backend_;
};

template <class Base>
abi::Engine* create_engine(const abi::InitParams* params) {
  try {
    auto engine = std::make_unique<FamilyEngine<Base>>(*params);
    return engine.release();
  } catch (const std::exception& error) {
    said(Status(Code::kInternal, "create back-end", error.what()), kPluginName);
    return nullptr;
  }
}

void destroy_engine(abi::Engine* engine) {
  delete engine;
}

abi::Plugin plugin_for(Family family) {
  abi::Engine* (*create)(const abi::InitParams*) = nullptr;
  switch (family) {
    case Family::kA:
      create = create_engine<abi::EngineA>;
      break;
    case Family::kB:
      create = create_engine<abi::EngineB>;
      break;
    case Family::kC:
      create = create_engine<abi::EngineC>;
      break;
  }
  return {.api_version = abi::kApiVersion,
          .create_engine = create,
          .destroy_engine = destroy_engine,
          .name = [] { return kPluginName; },
          .version = [] { return TCPX_VERSION; },
          .options = parameters_in_force,
          .memories = Backend::memories};
}

}  // namespace
}  // namespace tcpx::nixl

extern "C" {

/// The table for the library that calls; nullptr with a line of log for one that is not known.
__attribute__((visibility("default"))) tcpx::nixl::abi::Plugin* nixl_plugin_init() {
  using namespace tcpx::nixl;
  const auto family = family_of_library_at(__builtin_return_address(0));
  if (!family.is_ok()) {
    said(family.status(), kPluginName);
    return nullptr;
  }
  static abi::Plugin plugin = plugin_for(*family);
  return &plugin;
}

/// NIXL never unloads the library, so there is nothing to do.
__attribute__((visibility("default"))) void nixl_plugin_fini() {}
}
