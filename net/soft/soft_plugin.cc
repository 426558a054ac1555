#include "net/soft/soft_plugin.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "base/usable_cores.h"
#include "net/soft/socket_nic.h"
#include "secure/settings.h"

namespace tcpx::soft {
namespace {

// Longest wait of a call for the other end, so that a caller that polls in a loop does not burn a core.
constexpr Duration kConnectPatience = std::chrono::milliseconds(2);

const CoreSet& cores_of(const Bindings& bindings, const InterfaceAddress& interface) {
  static const CoreSet anywhere;
  const auto found = bindings.find(interface.name);
  return found != bindings.end() ? found->second : anywhere;
}

}  // namespace

SoftPlugin& SoftPlugin::instance() {
  static SoftPlugin& plugin = *new SoftPlugin;
  return plugin;
}

SoftPlugin::SoftPlugin() : memory_(make_machine_memory_ops()) {}

Status SoftPlugin::init() {
  MutexLock lock(mutex_);
  if (initialised_) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(auto config, Config::from_environment());
  TCPX_ASSIGN_OR_RETURN(auto devices, find_interfaces(config));
  TCPX_ASSIGN_OR_RETURN(auto control_addresses, find_control_addresses(config));
  TCPX_ASSIGN_OR_RETURN(const auto security, SecuritySettings::from_environment());
  TCPX_ASSIGN_OR_RETURN(secret_, Prover::from_environment());
  encrypts_ = security.protection == Protection::kEncrypt;
  if (encrypts_ && config.network == Network::kDevmem) {
    return Status(Code::kBadConfig, "init",
                  concat(kEncryptSetting,
                         ", and a NIC that puts data into device memory cannot decrypt it: UCCL_TCPX_NETWORK=devmem "
                         "needs IPsec, PSP or WireGuard below it, and UCCL_TCPX_SECURITY=auth"));
  }
  config_ = std::move(config);
  device_network_ = std::make_unique<DeviceNetwork>(*memory_, config_.pool_bytes, config_.devmem_socket);
  control_addresses_ = std::move(control_addresses);
  devices_ = std::move(devices);
  initialised_ = true;
  for (const InterfaceAddress& device : devices_) {
    log(LogLevel::kDebug, "tcpx-soft: device ", device.name, " ", device.address.host(), " ", device.speed_mbps, " Mbit/s");
  }
  return Status::ok();
}

bool SoftPlugin::encrypts() {
  MutexLock lock(mutex_);
  return initialised_ && encrypts_;
}

Result<int> SoftPlugin::device_count() {
  MutexLock lock(mutex_);
  if (!initialised_) return refused("devices", "init has not succeeded");
  return static_cast<int>(devices_.size());
}

Result<const InterfaceAddress*> SoftPlugin::device(int dev) {
  TCPX_ASSIGN_OR_RETURN(auto count, device_count());
  if (dev < 0 || dev >= count) return refused("device", concat("no device ", dev, ", there are ", count));
  return &devices_[static_cast<size_t>(dev)];
}

Result<std::shared_ptr<IoPool>> SoftPlugin::io_on(const CoreSet& cores) {
  const size_t threads = cores.empty() ? config_.io_threads : std::min<size_t>(config_.io_threads, cores.size());
  MutexLock lock(mutex_);
  std::weak_ptr<IoPool>& known = io_[cores];
  if (auto running = known.lock()) return running;
  auto started = IoPool::create(static_cast<uint32_t>(threads), config_.spin, cores);
  if (started.is_ok()) known = *started;
  return started;
}

std::unique_ptr<IoLoop> SoftPlugin::borrow_io() {
  {
    MutexLock lock(mutex_);
    if (!initialised_ || !config_.lends_io) return nullptr;
  }
  auto io = io_on({});
  return io.is_ok() ? IoPool::borrow(*std::move(io)) : nullptr;
}

Result<std::shared_ptr<PagePool>> SoftPlugin::pool_of(int gpu) {
  GpuPool* entry;
  {
    MutexLock lock(mutex_);
    entry = &pools_[gpu];
  }
  MutexLock lock(entry->making);
  if (auto pool = entry->pool.lock()) return pool;
  auto pool = PagePool::create(*memory_, gpu, config_.pool_bytes);
  if (pool.is_ok()) entry->pool = *pool;
  return pool;
}

bool SoftPlugin::tries_device_memory() const {
  if (encrypts_) return false;
  return config_.network == Network::kDevmem || (config_.network == Network::kAuto && memory_->has_gpu());
}

std::shared_ptr<const DevicePool> SoftPlugin::device_pool_of(const InterfaceAddress& interface) {
  if (!tries_device_memory() || interface.loopback) return nullptr;
  const auto gpu = memory_->current_device();
  auto pool = gpu.is_ok() ? device_network_->pool(*gpu, interface.name) : gpu.status();
  if (pool.is_ok()) return *std::move(pool);
  tell_why_not(interface.name, pool.status());
  return nullptr;
}

void SoftPlugin::tell_why_not(const std::string& interface, const Status& why) {
  const std::string line = concat("tcpx-soft: ", interface, " receives into host memory: ", why.to_string());
  MutexLock lock(mutex_);
  const bool is_wanted = config_.network == Network::kDevmem;
  if (told_.insert(line).second) log(is_wanted ? LogLevel::kWarning : LogLevel::kInfo, line);
}

std::shared_ptr<StagingPool> SoftPlugin::staging_of(int gpu) {
  MutexLock lock(mutex_);
  if (auto pool = staging_[gpu].lock()) return pool;
  auto pool = std::make_shared<StagingPool>(*memory_, gpu, config_.spin);
  staging_[gpu] = pool;
  return pool;
}

Result<std::unique_ptr<SoftListener>> SoftPlugin::listen(int dev) {
  TCPX_ASSIGN_OR_RETURN(auto interface, device(dev));
  // Connections that are accepted here receive on these threads, too.
  TCPX_ASSIGN_OR_RETURN(auto threads, io_on(cores_of(config_.receive_cores, *interface)));
  HandleInfo info = {.addresses = addresses_of(*interface),
                     .data_sockets = config_.data_sockets(usable_cores(), devices_.size()),
                     .chunk_bytes = config_.chunk_bytes,
                     .cookie = {},
                     .control_addresses = control_addresses_,
                     .encrypts = encrypts_};
  if (auto device_pool = device_pool_of(*interface); device_pool != nullptr) {
    HandleInfo apart = info;
    apart.host_addresses = apart.addresses;
    apart.headers_apart = true;
    TCPX_ASSIGN_OR_RETURN(auto listener, SoftListener::create(apart, threads, {}, secret_.get()));
    auto led = lead_to(std::move(device_pool), listener->data_listeners());
    if (led.is_ok()) {
      listener->receive_into(*std::move(led));
      return listener;
    }
    tell_why_not(interface->name, led.status());
  }
  return SoftListener::create(std::move(info), std::move(threads), {}, secret_.get());
}

Result<std::unique_ptr<SoftSendComm>> SoftPlugin::connect(int dev, Handle& handle) {
  TCPX_ASSIGN_OR_RETURN(auto interface, device(dev));
  TCPX_ASSIGN_OR_RETURN(auto info, decode_handle(handle));
  const uint64_t attempt = std::exchange(info.attempt, 0);
  std::unique_ptr<Connector> connector;
  if (attempt > kInSteps) {
    connector = take_attempt(attempt);
    if (connector == nullptr) return Status(Code::kTimeout, "connect", "this attempt has ended");
    handle = encode_handle(info);
  } else {
    const bool binds = names(config_.interfaces, interface->name) || answers_alone(interface->name);
    TCPX_ASSIGN_OR_RETURN(
        connector, Connector::start(info, addresses_of(*interface), Deadline::after(config_.connect_timeout), control_addresses_,
                                    binds ? interface->name : "", secret_.get(), encrypts_));
    if (!info.host_addresses.empty() && tries_device_memory()) {
      TCPX_ASSIGN_OR_RETURN(const auto gpu, memory_->current_device());
      TCPX_ASSIGN_OR_RETURN(auto device_sources, device_network_->sources(gpu, interface->name));
      connector->send_from(std::move(device_sources), interface->name);
    }
  }
  TCPX_ASSIGN_OR_RETURN(auto sockets, connector->advance(attempt == 0 ? config_.connect_timeout : kConnectPatience));
  if (!sockets.has_value()) {
    TCPX_ASSIGN_OR_RETURN(info.attempt, keep_attempt(std::move(connector)));
    handle = encode_handle(info);
    return std::unique_ptr<SoftSendComm>();
  }
  TCPX_RETURN_IF_ERROR(watch_host(*sockets, config_.peer_timeout));
  TCPX_ASSIGN_OR_RETURN(auto gpu, memory_->current_device());
  TCPX_ASSIGN_OR_RETURN(auto threads, io_on(cores_of(config_.send_cores, *interface)));
  sockets->nic = nic_of_sender(sockets->data.front().get());
  sockets->spare_copies = config_.spare_copies(sockets->nic);
  sockets->placement = place_sockets(CommSide::kSends, sockets->data.size());
  if (sockets->device_sockets > 0)
    log(LogLevel::kInfo, "tcpx-soft: to ", sockets->peer, ", by ", sockets->nic, ": into device memory",
        sockets->device_sources != nullptr ? ", from device memory" : ", from host memory");
  return SoftSendComm::create(*memory_, gpu, std::move(threads), staging_of(gpu), std::move(*sockets));
}

std::optional<Status> SoftPlugin::give_up_connect(const Handle& handle) {
  const auto info = decode_handle(handle);
  if (!info.is_ok() || info->attempt <= kInSteps) return std::nullopt;
  const auto connector = take_attempt(info->attempt);
  return connector != nullptr ? connector->trouble() : Status::ok();
}

std::unique_ptr<Connector> SoftPlugin::take_attempt(uint64_t number) {
  MutexLock lock(mutex_);
  const auto found = attempts_.find(number);
  if (found == attempts_.end()) return nullptr;
  auto connector = std::move(found->second);
  attempts_.erase(found);
  return connector;
}

// The number is random because a handle comes from the other end, which must not be able to name attempts of others.
Result<uint64_t> SoftPlugin::keep_attempt(std::unique_ptr<Connector> connector) {
  Result<uint64_t> number = random_id();
  while (number.is_ok() && *number <= kInSteps) number = random_id();
  if (!number.is_ok()) return number.status();
  MutexLock lock(mutex_);
  // Attempts that have expired without being asked for were abandoned.
  std::erase_if(attempts_, [](const auto& entry) { return entry.second->deadline().expired(); });
  attempts_.emplace(*number, std::move(connector));
  return number;
}

Result<std::unique_ptr<SoftRecvComm>> SoftPlugin::accept(SoftListener& listener) {
  // Steps that can fail come before the peer is taken: it then stays queued for the next call.
  if (!listener.has_peer()) {
    TCPX_RETURN_IF_ERROR(listener.shortage());
    return std::unique_ptr<SoftRecvComm>();
  }
  TCPX_ASSIGN_OR_RETURN(auto gpu, memory_->current_device());
  const auto device_pool = listener.device_pool();
  if (device_pool != nullptr && device_pool->gpu != gpu)
    return refused("accept", concat("GPU ", gpu, " is current, and GPU ", device_pool->gpu, " was when this listener was made"));
  TCPX_ASSIGN_OR_RETURN(auto pool, device_pool != nullptr ? Result(device_pool->pages) : pool_of(gpu));
  auto sockets = listener.try_accept();
  if (!sockets) return std::unique_ptr<SoftRecvComm>();
  TCPX_RETURN_IF_ERROR(watch_host(*sockets, config_.peer_timeout));
  sockets->nic = nic_of_receiver(sockets->data.front().get());
  sockets->spare_copies = config_.spare_copies(sockets->nic);
  sockets->placement = place_sockets(CommSide::kReceives, sockets->data.size());
  if (sockets->device_pool != nullptr)
    log(LogLevel::kInfo, "tcpx-soft: from ", sockets->peer, ", by ", sockets->nic, ": into device memory");
  return SoftRecvComm::create(*memory_, gpu, listener.io(), std::move(pool), std::move(*sockets));
}

}  // namespace tcpx::soft
