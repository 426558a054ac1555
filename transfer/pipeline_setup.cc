#include "transfer/pipeline_setup.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "base/link_state.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Of what peer_messages.h says and of what a pipeline takes for granted about its peer.
constexpr int kPipelineVersion = 3;

constexpr std::string_view kPluginSockets = "plugin data sockets";
constexpr std::string_view kLongestChunk = "longest chunk bytes";
constexpr std::string_view kNics = "nics";  // of the receiving end's channels
constexpr size_t kMaxNicBytes = 60;
static_assert(kMaxChannels * (kMaxNicBytes + 1) <= kMaxParameterBytes);
constexpr std::string_view kMustMatch[] = {"pipeline version", "channels", "chunk bytes", "failover", kPluginPieceBytes};

Status check(const ChannelDevices& devices, const HandshakeWait& wait) {
  if (devices.empty() || devices.size() > kMaxChannels) {
    return Status(Code::kInvalidArgument, "open connection", concat(devices.size(), " channels, must be 1 to ", kMaxChannels));
  }
  if (wait.peer == nullptr) return Status(Code::kInvalidArgument, "open connection", "no bootstrap channel");
  return Status::ok();
}

Result<uint32_t> number_of(const Parameters& theirs, std::string_view name) {
  const auto found = theirs.find(std::string(name));
  const std::string text = found != theirs.end() ? found->second : "";
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return Status(Code::kProtocol, "open connection",
                concat("the peer's \"", name, "\" is \"", printable(std::as_bytes(std::span(text)), 32), '"'));
}

// Names are for people, and to know one NIC from another: a comma in one is none.
std::string listed(const std::vector<std::string>& nics) {
  std::string list;
  for (const std::string& nic : nics) {
    std::string name = nic.substr(0, kMaxNicBytes);
    std::replace(name.begin(), name.end(), ',', '_');
    list += concat(list.empty() ? "" : ",", name.empty() ? "?" : name);
  }
  return list;
}

Result<std::vector<std::string>> nics_in(const Parameters& theirs, size_t channels) {
  const auto found = theirs.find(std::string(kNics));
  std::string_view list = found != theirs.end() ? std::string_view(found->second) : "";
  std::vector<std::string> nics;
  for (bool more = true; more && nics.size() <= channels;) {
    const size_t end = std::min(list.find(','), list.size());
    nics.push_back(printable(std::as_bytes(std::span(list.substr(0, end))), kMaxNicBytes));
    more = end < list.size();
    list.remove_prefix(end + (more ? 1 : 0));
  }
  if (nics.size() == channels) return nics;
  return Status(Code::kProtocol, "open connection", concat("the peer does not name the NICs of its ", channels, " channels"));
}

struct Agreed {
  PipelineOptions options;
  Parameters theirs;
};

// @return the options that hold at both ends: chunks grow to what the less willing of both says
Result<Agreed> agree(Direction mine, const ChannelDevices& devices, NetPlugin& plugin, PipelineOptions options,
                     const HandshakeWait& wait) {
  // Long requests cost pages of its pool: none that the user has not asked for.
  if (plugin.message_cut()) options.longest_chunk_bytes = 0;
  const auto plan = ChunkPlan::make(0, options.chunk_bytes, options.longest_chunk_bytes);
  if (!plan.is_ok()) return plan.status();
  Parameters parameters = {{"pipeline version", std::to_string(kPipelineVersion)},
                           {"half", std::string(name_of(mine))},
                           {"channels", std::to_string(devices.size())},
                           {"chunk bytes", std::to_string(options.chunk_bytes)},
                           {std::string(kLongestChunk), std::to_string(options.longest_chunk_bytes)},
                           {"failover", options.failover ? "on" : "off"}};
  if (mine == Direction::kRecv) {
    TCPX_ASSIGN_OR_RETURN(const auto nics, nics_of(plugin, devices));
    parameters.emplace(kNics, listed(nics));
  }
  add_message_cut(plugin, parameters);
  TCPX_ASSIGN_OR_RETURN(auto theirs, wait.peer->exchange_parameters(parameters, kMustMatch, wait.deadline));
  const auto half = theirs.find("half");
  if (half != theirs.end() && half->second == name_of(mine)) {
    return Status(Code::kMismatch, "open connection",
                  concat("both ends want to ", mine == Direction::kSend ? "send" : "receive"));
  }
  TCPX_ASSIGN_OR_RETURN(const auto longest, number_of(theirs, kLongestChunk));
  options.longest_chunk_bytes = std::min(options.longest_chunk_bytes, longest);
  TCPX_RETURN_IF_ERROR(check_chunk_bytes(plugin, mine, theirs, options.chunk_bytes));
  return Agreed{options, std::move(theirs)};
}

void tell_devices(const std::vector<PairedChannel>& channels, ChannelDevices* standing) {
  if (standing == nullptr) return;
  standing->clear();
  for (const PairedChannel& channel : channels) standing->push_back(channel.device);
}

// The device's own, where the plugin does not tell which one the comm has.
std::string nic_of(const PairedChannel& channel) {
  const std::string told = channel.comm.nic();
  return told.empty() ? channel.nic : told;
}

Result<std::unique_ptr<Pipeline>> make_pipeline(std::vector<ChannelParts> parts, const PipelineOptions& options,
                                                const HandshakeWait& wait, std::unique_ptr<PeerLink> link) {
  TCPX_ASSIGN_OR_RETURN(const auto watch, LinkWatch::shared());
  // A name that is no interface now (a plugin may name its devices as it likes) is none later; one that is and goes is down.
  std::set<std::string> interfaces;
  for (const ChannelParts& channel : parts) {
    if (watch->state(channel.nic) != LinkState::kUnknown) interfaces.insert(channel.nic);
  }
  const std::string peer_nic = wait.peer->interface();
  if (!peer_nic.empty()) interfaces.insert(peer_nic);
  PipelineLinks links{.peer = link != nullptr ? std::move(link) : wait.peer->open_flow(),
                      .peer_nic = peer_nic,
                      .link_is_down = [watch, interfaces = std::move(interfaces)](const std::string& nic) {
                        return interfaces.contains(nic) && watch->state(nic) != LinkState::kUp;
                      }};
  auto pipeline = Pipeline::create(std::move(parts), std::move(links), Clock::steady(), options);
  if (!pipeline.is_ok()) return pipeline.status();
  // From here on both halves take messages of the other.
  TCPX_RETURN_IF_ERROR(wait.peer->barrier(wait.deadline));
  return pipeline;
}

}  // namespace

void add_message_cut(const NetPlugin& plugin, Parameters& mine) {
  const auto cut = plugin.message_cut();
  if (!cut) return;
  mine.emplace(kPluginPieceBytes, std::to_string(cut->piece_bytes));
  mine.emplace(kPluginSockets, std::to_string(cut->sockets));
}

// A chunk that the plugin cuts into more pieces than the receiver has sockets would cost the receiver pages (18). It is refused
// and not cut smaller: the chunk size is the user's and the same at both ends, and another one here than the user set would show
// in every number that is measured. Both ends know both numbers, so both say it, before anything is made.
Status check_chunk_bytes(const NetPlugin& plugin, Direction mine, const Parameters& theirs, uint32_t chunk_bytes) {
  const auto cut = plugin.message_cut();
  if (!cut) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto peer_sockets, number_of(theirs, kPluginSockets));
  const uint32_t receiver_sockets = mine == Direction::kRecv ? cut->sockets : peer_sockets;
  const uint64_t most = uint64_t{cut->piece_bytes} * receiver_sockets;
  if (chunk_bytes <= most) return Status::ok();
  const auto name = [](Variable id) { return environment_info(id).name; };
  return Status(
      Code::kBadConfig, "open connection",
      concat(name(Variable::kChunkBytes), " is ", chunk_bytes, ", but the plugin loses pages of its pool with more than ", most,
             ", which is ", name(Variable::kDynamicChunkSize), " (", cut->piece_bytes, ") x data sockets of the receiver (",
             receiver_sockets, ", from ", name(Variable::kNsocksPerThread), " and ", name(Variable::kSocketNthreads),
             "): set it to ", std::min<uint64_t>(most, kMaxRequestBytes), " or less at both ends"));
}

Result<PipelineSettings> PipelineSettings::from_environment() {
  PipelineSettings settings;
  const auto read = [](Variable id, auto& value) {
    const auto number = environment_integer(id);
    if (number.is_ok()) value = static_cast<std::remove_reference_t<decltype(value)>>(*number);
    return number.status();
  };
  TCPX_RETURN_IF_ERROR(read(Variable::kNumChannels, settings.channels));
  TCPX_RETURN_IF_ERROR(read(Variable::kRecvWindow, settings.recv_window));
  TCPX_RETURN_IF_ERROR(read(Variable::kSendWindow, settings.send_window));
  TCPX_RETURN_IF_ERROR(read(Variable::kChunkBytes, settings.chunk_bytes));
  if (!environment_is_set(Variable::kChunkBytes)) {
    TCPX_ASSIGN_OR_RETURN(const auto pool_bytes, environment_integer(Variable::kSoftPoolBytes));  // each must fit in there
    settings.longest_chunk_bytes = static_cast<uint32_t>(std::min<int64_t>(kLongestChunkBytes, pool_bytes));
  }
  TCPX_RETURN_IF_ERROR(read(Variable::kFailover, settings.failover));
  TCPX_ASSIGN_OR_RETURN(const auto stall_limit, environment_integer(Variable::kTimeoutMs));
  settings.stall_limit = std::chrono::milliseconds(stall_limit);
  return settings;
}

PipelineOptions PipelineSettings::options(Direction direction) const {
  PipelineOptions options;
  options.limits.window = direction == Direction::kSend ? send_window : recv_window;
  options.chunk_bytes = chunk_bytes;
  options.longest_chunk_bytes = longest_chunk_bytes;
  options.failover = failover;
  options.limits.stall_limit = stall_limit;
  return options;
}

Result<std::unique_ptr<Pipeline>> open_receiver(NetPlugin& plugin, const ChannelDevices& devices, const ReceiverParts& parts,
                                                const PipelineOptions& asked, const HandshakeWait& wait,
                                                std::unique_ptr<PeerLink> link, ChannelDevices* standing) {
  TCPX_RETURN_IF_ERROR(check(devices, wait));
  TCPX_ASSIGN_OR_RETURN(const auto agreed, agree(Direction::kRecv, devices, plugin, asked, wait));
  TCPX_ASSIGN_OR_RETURN(auto paired, accept_channels(plugin, devices, wait));
  tell_devices(paired, standing);
  std::vector<ChannelParts> channels;
  for (PairedChannel& one : paired) {
    ReceiveParts receive{.unpacker = parts.unpacker, .pool = {}, .tap = parts.tap};
    if (parts.lane != nullptr) {
      TCPX_ASSIGN_OR_RETURN(const auto pool, plugin.bounce_pool(*one.device_handle, *parts.memory, *parts.lane));
      receive.pool = pool;
    }
    std::string nic = nic_of(one);
    channels.push_back({.device_handle = std::move(one.device_handle),
                        .comm = std::move(one.comm),
                        .receive = receive,
                        .nic = std::move(nic)});
  }
  return make_pipeline(std::move(channels), agreed.options, wait, std::move(link));
}

Result<std::unique_ptr<Pipeline>> open_sender(NetPlugin& plugin, const ChannelDevices& devices, const PipelineOptions& asked,
                                              const HandshakeWait& wait, std::unique_ptr<PeerLink> link,
                                              ChannelDevices* standing) {
  TCPX_RETURN_IF_ERROR(check(devices, wait));
  TCPX_ASSIGN_OR_RETURN(const auto agreed, agree(Direction::kSend, devices, plugin, asked, wait));
  TCPX_ASSIGN_OR_RETURN(const auto peer_nics, nics_in(agreed.theirs, devices.size()));
  TCPX_ASSIGN_OR_RETURN(auto paired, connect_channels(plugin, devices, peer_nics, wait));
  tell_devices(paired, standing);
  std::vector<ChannelParts> channels;
  for (PairedChannel& one : paired) {
    std::string nic = nic_of(one);
    channels.push_back({.comm = std::move(one.comm), .receive = {}, .nic = std::move(nic)});
  }
  return make_pipeline(std::move(channels), agreed.options, wait, std::move(link));
}

}  // namespace tcpx
