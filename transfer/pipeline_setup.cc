#include "transfer/pipeline_setup.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "base/link_state.h"
#include "base/route.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr const char* kOpen = "open connection";
constexpr std::string_view kPluginSockets = "plugin data sockets";
constexpr std::string_view kLongestChunk = "longest chunk bytes";
constexpr std::string_view kNics = "nics";  // the NICs of the receiving end's channels
constexpr size_t kMaxNicBytes = 60;
static_assert(kMaxChannels * (kMaxNicBytes + 1) <= kMaxParameterBytes);
constexpr std::string_view kMustMatch[] = {"channels", "chunk bytes", "failover", kPluginPieceBytes};

Result<uint32_t> number_of(const Parameters& theirs, std::string_view name) {
  const auto found = theirs.find(std::string(name));
  const std::string text = found != theirs.end() ? found->second : "";
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return Status(Code::kProtocol, kOpen,
                concat("the peer's \"", name, "\" is \"", printable(std::as_bytes(std::span(text)), 32), '"'));
}

// Makes a list of names separated by commas. The names are for people, and to tell NICs apart, so a comma in a name is replaced.
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
  return Status(Code::kProtocol, kOpen, concat("the peer does not name the NICs of its ", channels, " channels"));
}

constexpr const char *kHalf = "half", *kInTurn = "in turn", *kYes = "yes";

// The value with which each end describes itself.
std::string_view name_of(const PipelineOpening::Halves& halves) {
  if (halves.send && halves.recv) return "both";
  return name_of(halves.send ? Direction::kSend : Direction::kRecv);
}

std::vector<Direction> directions_of(const PipelineOpening::Halves& halves) {
  std::vector<Direction> directions;
  if (halves.send) directions.push_back(Direction::kSend);
  if (halves.recv) directions.push_back(Direction::kRecv);
  return directions;
}

// The comm's NIC; the device's NIC when the plugin does not tell the comm's.
std::string nic_of(const PairedChannel& channel) {
  const std::string told = channel.comm.nic();
  return told.empty() ? channel.nic : told;
}

Result<std::unique_ptr<Pipeline>> make_pipeline(std::vector<ChannelParts> parts, const PipelineOptions& options,
                                                const HandshakeWait& wait, std::unique_ptr<PeerMailbox> mailbox,
                                                const std::shared_ptr<const LinkWatch>& watch) {
  // Only names that are interfaces now are watched, because a plugin may name its devices as it likes. One that disappears later
  // counts as down.
  std::set<std::string> interfaces;
  for (const ChannelParts& channel : parts) {
    if (watch->state(channel.nic) != LinkState::kUnknown) interfaces.insert(channel.nic);
  }
  const std::string peer_nic = wait.peer->interface();
  if (!peer_nic.empty()) interfaces.insert(peer_nic);
  const bool shares_channel = mailbox == nullptr;
  const bool receives = parts.front().comm.direction() == Direction::kRecv;
  PipelineMeans means{.peer = shares_channel ? wait.peer->mailbox_to(receives) : std::move(mailbox),
                      .peer_nic = peer_nic,
                      .link_is_down = [watch, interfaces = std::move(interfaces)](const std::string& nic) {
                        return interfaces.contains(nic) && watch->state(nic) != LinkState::kUp;
                      }};
  auto pipeline = Pipeline::create(std::move(parts), std::move(means), Clock::steady(), options);
  if (!pipeline.is_ok()) return pipeline.status();
  // The channel drops messages for a half that does not exist yet, so wait until the peer's half does.
  if (shares_channel) TCPX_RETURN_IF_ERROR(wait.peer->barrier(wait.deadline));
  return pipeline;
}

}  // namespace

void add_message_cut(const NetPlugin& plugin, Parameters& mine) {
  const auto cut = plugin.message_cut();
  if (!cut) return;
  mine.emplace(kPluginPieceBytes, std::to_string(cut->piece_bytes));
  mine.emplace(kPluginSockets, std::to_string(cut->sockets));
}

// A chunk that the plugin cuts into more pieces than the receiver has sockets would cost the receiver pages (18). Such a chunk
// size is refused and not reduced: the user has chosen it for both ends, and another size would change every measured number.
// Both ends know both numbers, so both report the error before anything is made.
Status check_chunk_bytes(const NetPlugin& plugin, Direction mine, const Parameters& theirs, uint32_t chunk_bytes) {
  const auto cut = plugin.message_cut();
  if (!cut) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto peer_sockets, number_of(theirs, kPluginSockets));
  const uint32_t receiver_sockets = mine == Direction::kRecv ? cut->sockets : peer_sockets;
  const uint64_t most = uint64_t{cut->piece_bytes} * receiver_sockets;
  if (chunk_bytes <= most) return Status::ok();
  const auto name = [](Variable id) { return environment_info(id).name; };
  return Status(
      Code::kBadConfig, kOpen,
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
    // Each chunk must fit into the pool.
    TCPX_ASSIGN_OR_RETURN(const auto pool_bytes, environment_integer(Variable::kSoftPoolBytes));
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

Result<PipelineOpening> PipelineOpening::begin(NetPlugin& plugin, ChannelDevices devices, Halves halves) {
  if (devices.empty() || devices.size() > kMaxChannels)
    return Status(Code::kInvalidArgument, kOpen, concat(devices.size(), " channels, must be 1 to ", kMaxChannels));
  for (auto* const options : {&halves.send, &halves.recv}) {
    if (!*options) continue;
    // Such a plugin loses pages of its pool to long requests, so chunks are never longer than the user has asked for.
    if (plugin.message_cut()) (*options)->longest_chunk_bytes = 0;
    TCPX_RETURN_IF_ERROR(ChunkPlan::make(0, (*options)->chunk_bytes, (*options)->longest_chunk_bytes).status());
  }
  const PipelineOptions& options = halves.send ? *halves.send : *halves.recv;
  Parameters mine = {{kHalf, std::string(name_of(halves))},
                     {"chunk bytes", std::to_string(options.chunk_bytes)},
                     {std::string(kLongestChunk), std::to_string(options.longest_chunk_bytes)},
                     {"failover", options.failover ? "on" : "off"}};
  // Ends that open both halves agree on the number of channels in another way.
  if (!halves.send || !halves.recv) mine.emplace("channels", std::to_string(devices.size()));
  add_message_cut(plugin, mine);
  std::vector<Listener> listeners;
  if (halves.recv) {
    TCPX_ASSIGN_OR_RETURN(const auto nics, nics_of(plugin, devices));
    mine.emplace(kNics, listed(nics));
    TCPX_ASSIGN_OR_RETURN(listeners, listen_all(plugin, devices));
  }
  PipelineOpening opening(plugin, std::move(devices), std::move(halves), std::move(mine));
  opening.listeners_ = std::move(listeners);
  return opening;
}

// True when the two directions must be paired one after the other. Data sockets that are bound to their NIC receive only what
// arrives there. When every NIC of a host answers ARP for the addresses of all its NICs, a host learns the right NIC of its peer
// from an incoming connect. It does not learn it when both hosts look for each other at the same moment.
bool PipelineOpening::wants_turns(const BootstrapChannel& peer) const {
  const auto nics = nics_of(*plugin_, devices_);
  if (!nics.is_ok()) return false;
  const auto usual = find_route(peer.peer(), nullptr);
  const std::set<std::string> each(nics->begin(), nics->end());
  return std::any_of(each.begin(), each.end(),
                     [&](const std::string& nic) { return must_bind(nic, usual, find_route(peer.peer(), nullptr, nic)); });
}

Status PipelineOpening::tell(BootstrapChannel& peer, Deadline deadline) {
  in_turn_ = wants_turns(peer);
  mine_.emplace(kInTurn, in_turn_ ? kYes : "no");
  TCPX_RETURN_IF_ERROR(peer.send_parameters(mine_, deadline));
  return listeners_.empty() ? Status::ok() : peer.send_handles(handles_of(listeners_), deadline);
}

Status PipelineOpening::add_channels(ChannelDevices devices, BootstrapChannel& peer, Deadline deadline) {
  const auto more = std::span(devices).subspan(devices_.size());
  if (!more.empty() && halves_.recv) {
    TCPX_ASSIGN_OR_RETURN(auto listeners, listen_all(*plugin_, more));
    TCPX_RETURN_IF_ERROR(peer.send_handles(handles_of(listeners), deadline));
    std::move(listeners.begin(), listeners.end(), std::back_inserter(listeners_));
  }
  devices_ = std::move(devices);
  return Status::ok();
}

Status PipelineOpening::check_half(const Parameters& theirs) const {
  const auto found = theirs.find(kHalf);
  const std::string_view there = found != theirs.end() ? std::string_view(found->second) : "";
  const std::string_view here = name_of(halves_);
  const auto wanted = halves_.send && halves_.recv ? here : name_of(halves_.send ? Direction::kRecv : Direction::kSend);
  if (there == wanted) return Status::ok();
  if (there == here) return Status(Code::kMismatch, kOpen, concat("both ends want to ", halves_.send ? "send" : "receive"));
  return Status(Code::kProtocol, kOpen,
                concat("this end opens \"", here, "\", the peer \"", printable(std::as_bytes(std::span(there)), 32), '"'));
}

Status PipelineOpening::hear(BootstrapChannel& peer, size_t told, Deadline deadline) {
  TCPX_ASSIGN_OR_RETURN(const auto theirs, peer.receive_parameters(deadline));
  TCPX_RETURN_IF_ERROR(compare_parameters(mine_, theirs, kMustMatch));
  TCPX_RETURN_IF_ERROR(check_half(theirs));
  const auto turns = theirs.find(kInTurn);
  in_turn_ |= turns != theirs.end() && turns->second == kYes;
  TCPX_ASSIGN_OR_RETURN(const auto longest, number_of(theirs, kLongestChunk));
  for (const Direction direction : directions_of(halves_)) {
    PipelineOptions& options = direction == Direction::kSend ? *halves_.send : *halves_.recv;
    // Chunks grow up to the smaller of the two ends' limits.
    options.longest_chunk_bytes = std::min(options.longest_chunk_bytes, longest);
    TCPX_RETURN_IF_ERROR(check_chunk_bytes(*plugin_, direction, theirs, options.chunk_bytes));
  }
  if (!halves_.send) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(theirs_.peer_nics, nics_in(theirs, told));
  TCPX_ASSIGN_OR_RETURN(theirs_.handles, receive_handles(peer, told, deadline));
  if (told == devices_.size()) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto more, receive_handles(peer, devices_.size() - told, deadline));
  theirs_.handles.insert(theirs_.handles.end(), more.begin(), more.end());
  // The peer repeats its list of devices for the added channels.
  for (size_t i = told; i < devices_.size(); ++i) theirs_.peer_nics.push_back(theirs_.peer_nics[i - told]);
  return Status::ok();
}

Result<PipelineOpening::Opened> PipelineOpening::finish(const HandshakeWait& wait, Mailboxes mailboxes) {
  // This comes before the peer is told that the channels are connected: after that, nothing here needs a new descriptor.
  TCPX_ASSIGN_OR_RETURN(const auto watch, LinkWatch::shared());
  std::optional<ConnectingHalf> connecting;
  std::optional<AcceptingHalf> accepting;
  if (halves_.send) connecting = std::move(theirs_);
  if (halves_.recv) accepting = AcceptingHalf{std::move(listeners_)};
  for (auto* const options : {&halves_.send, &halves_.recv}) {
    if (*options) (*options)->sender_places = mailboxes.sender_places && !(*options)->failover;
  }
  TCPX_ASSIGN_OR_RETURN(auto paired, pair_channels(*plugin_, devices_, std::move(connecting), std::move(accepting),
                                                   {.accepts_first = halves_.recv_first, .in_turn = in_turn_}, wait));
  Opened opened;
  if (halves_.send) {
    std::vector<ChannelParts> channels;
    for (PairedChannel& one : paired.sending) {
      std::string nic = nic_of(one);
      channels.push_back({.comm = std::move(one.comm), .receive = {}, .nic = std::move(nic)});
    }
    TCPX_ASSIGN_OR_RETURN(opened.send, make_pipeline(std::move(channels), *halves_.send, wait, std::move(mailboxes.send), watch));
  }
  if (halves_.recv) {
    const ReceiverParts& parts = halves_.receiver;
    std::vector<ChannelParts> channels;
    for (PairedChannel& one : paired.receiving) {
      ReceiveParts receive{.unpacker = parts.unpacker, .pool = {}, .tap = parts.tap};
      if (parts.lane != nullptr) {
        TCPX_ASSIGN_OR_RETURN(const auto pool, plugin_->bounce_pool(*one.device_handle, *parts.memory, *parts.lane));
        receive.pool = pool;
      }
      std::string nic = nic_of(one);
      channels.push_back({.device_handle = std::move(one.device_handle),
                          .comm = std::move(one.comm),
                          .receive = receive,
                          .nic = std::move(nic)});
    }
    TCPX_ASSIGN_OR_RETURN(opened.recv, make_pipeline(std::move(channels), *halves_.recv, wait, std::move(mailboxes.recv), watch));
  }
  return opened;
}

namespace {

Result<PipelineOpening::Opened> open(NetPlugin& plugin, const ChannelDevices& devices, PipelineOpening::Halves halves,
                                     const HandshakeWait& wait) {
  if (wait.peer == nullptr) return Status(Code::kInvalidArgument, kOpen, "no bootstrap channel");
  TCPX_ASSIGN_OR_RETURN(auto opening, PipelineOpening::begin(plugin, devices, std::move(halves)));
  TCPX_RETURN_IF_ERROR(opening.tell(*wait.peer, wait.deadline));
  TCPX_RETURN_IF_ERROR(opening.hear(*wait.peer, devices.size(), wait.deadline));
  return opening.finish(wait, {});
}

}  // namespace

Result<std::unique_ptr<Pipeline>> open_receiver(NetPlugin& plugin, const ChannelDevices& devices, const ReceiverParts& parts,
                                                const PipelineOptions& options, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(auto opened, open(plugin, devices, {.send = {}, .recv = options, .receiver = parts}, wait));
  return std::move(opened.recv);
}

Result<std::unique_ptr<Pipeline>> open_sender(NetPlugin& plugin, const ChannelDevices& devices, const PipelineOptions& options,
                                              const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(auto opened, open(plugin, devices, {.send = options, .recv = {}, .receiver = {}}, wait));
  return std::move(opened.send);
}

}  // namespace tcpx
