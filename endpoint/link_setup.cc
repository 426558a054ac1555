#include "endpoint/link_setup.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "endpoint/lane.h"
#include "endpoint/same_host.h"
#include "endpoint/wire.h"
#include "transfer/run.h"

namespace tcpx {
namespace {

constexpr const char* kSetUp = "set up link";
// Of what wire.h says and of what an endpoint takes for granted about its peer.
constexpr int kEndpointVersion = 7;
constexpr std::string_view kMustMatch[] = {"endpoint version"};

constexpr std::string_view role_of(bool connector) {
  return connector ? "connect" : "accept";
}

// The peer's number of that name, within [least, most].
template <class T>
Status read(const Parameters& theirs, const std::string& name, T least, T most, T& value) {
  const auto found = theirs.find(name);
  if (found == theirs.end()) return Status(Code::kProtocol, kSetUp, concat("the peer does not tell its ", name));
  const std::string& text = found->second;
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    return Status(Code::kProtocol, kSetUp,
                  concat("the peer's ", name, " is \"", printable(std::as_bytes(std::span(text)), 32), '"'));
  }
  value = number;
  return Status::ok();
}

// The acceptor's error for a connector that has come to the wrong endpoint; the peer reads it.
Status check_wishes(const EndpointIdentity& mine, const EndpointIdentity& peer) {
  if (peer.wanted_instance != 0 && peer.wanted_instance != mine.instance)
    return Status(Code::kPeerGone, kSetUp, "another endpoint listens there now (restarted?)");
  if (peer.wanted_gpu_idx >= 0 && peer.wanted_gpu_idx != mine.gpu_idx) {
    return Status(Code::kMismatch, kSetUp,
                  concat("GPU ", peer.wanted_gpu_idx, " is wanted, the endpoint that listens has GPU ", mine.gpu_idx));
  }
  return Status::ok();
}

constexpr const char* kOn = "on";

// A window's size, which its end decides.
constexpr std::string_view text_of(CreditWindows::Size windows) {
  return windows == CreditWindows::Size::kWhole ? "whole" : "small";
}

// Whole windows while connections have little: a new one then works at full speed without asking.
Status take_place(bool connector, const LinkSetup& setup, LinkParts& parts) {
  constexpr uint64_t kSpendFreely = 8;  // while less than this part of all is taken
  constexpr uint64_t kWholeInstead = kMaxHeldBytes - kWindows * kSmallWindowBytes;
  if (setup.peers == nullptr) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(parts.place, setup.peers->admit(parts.peer_host, connector));
  if (!parts.place.grow(kWholeInstead, kSpendFreely)) parts.own_windows = CreditWindows::Size::kSmall;
  return Status::ok();
}

// Bytes that nobody wants any more must go somewhere (endpoint/lane.h), and those of steered flows may not go to host memory.
bool may_be_eager(const LinkSetup& setup) {
  return setup.eager && !setup.plugin.steers_flows() &&
         std::max(setup.settings.chunk_bytes, setup.settings.longest_chunk_bytes) <= kStagingBytes;
}

struct Host {
  std::string boot_id;
  std::string same_host;  // kOn: it wishes to share memory
};

/// The first things that the ends tell each other.
struct Identities {
  EndpointIdentity peer;
  CreditWindows::Size windows = CreditWindows::Size::kWhole;  // of the peer
  bool eager = false;                                         // both may be
  Host here, there;
  size_t channels = 0;  // each way
};

Result<Identities> exchange_identity(BootstrapChannel& channel, bool connector, const LinkSetup& setup,
                                     CreditWindows::Size windows, Deadline deadline) {
  const EndpointIdentity& mine = setup.identity;
  const size_t channels = setup.devices.size();
  Identities all;
  all.here = {.boot_id = setup.boot_id.empty() ? boot_id() : setup.boot_id, .same_host = setup.same_host ? kOn : "off"};
  const Parameters parameters = {{"endpoint version", std::to_string(kEndpointVersion)},
                                 {"role", std::string(role_of(connector))},
                                 {"instance", std::to_string(mine.instance)},
                                 {"gpu", std::to_string(mine.gpu_idx)},
                                 {"wanted gpu", std::to_string(mine.wanted_gpu_idx)},
                                 {"wanted instance", std::to_string(mine.wanted_instance)},
                                 {"inline bytes", std::to_string(mine.inline_bytes)},
                                 {"channels", std::to_string(channels)},
                                 {"windows", std::string(text_of(windows))},
                                 {"eager", may_be_eager(setup) ? kOn : "off"},
                                 {"gpu bus", mine.gpu_bus},
                                 {"boot id", all.here.boot_id},
                                 {"same host", all.here.same_host}};
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.exchange_parameters(parameters, kMustMatch, deadline));
  const auto role = theirs.find("role");
  if (role == theirs.end() || role->second != role_of(!connector)) {
    return Status(Code::kMismatch, kSetUp,
                  concat("this end means to ", role_of(connector), ", the peer does not mean to ", role_of(!connector)));
  }
  EndpointIdentity& peer = all.peer;
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  constexpr uint64_t kMaxInstance = std::numeric_limits<uint64_t>::max();
  size_t peer_channels = 0;
  TCPX_RETURN_IF_ERROR(read(theirs, "instance", uint64_t{0}, kMaxInstance, peer.instance));
  TCPX_RETURN_IF_ERROR(read(theirs, "gpu", 0, kMaxInt, peer.gpu_idx));
  TCPX_RETURN_IF_ERROR(read(theirs, "wanted gpu", -1, kMaxInt, peer.wanted_gpu_idx));
  TCPX_RETURN_IF_ERROR(read(theirs, "wanted instance", uint64_t{0}, kMaxInstance, peer.wanted_instance));
  TCPX_RETURN_IF_ERROR(read(theirs, "inline bytes", uint32_t{0}, kMaxInlineBytes, peer.inline_bytes));
  TCPX_RETURN_IF_ERROR(read(theirs, "channels", size_t{1}, size_t{kMaxChannels}, peer_channels));
  if (!connector) TCPX_RETURN_IF_ERROR(check_wishes(mine, peer));
  // The end with fewer devices goes round them again. Flows that are steered have one NIC, and the number is the user's choice.
  all.channels = std::max(channels, peer_channels);
  if (peer_channels != channels && setup.plugin.steers_flows()) {
    return Status(Code::kMismatch, kSetUp,
                  concat(channels, " channels here and ", peer_channels,
                         " at the peer: set UCCL_TCPX_NUM_CHANNELS to the same number at both ends"));
  }
  const auto their_windows = theirs.find("windows");
  if (their_windows != theirs.end()) {
    if (their_windows->second == text_of(CreditWindows::Size::kSmall)) {
      all.windows = CreditWindows::Size::kSmall;
    } else if (their_windows->second != text_of(CreditWindows::Size::kWhole)) {
      return Status(Code::kProtocol, kSetUp, "the peer's windows are neither whole nor small");
    }
  }
  if (const auto found = theirs.find("eager"); found != theirs.end()) all.eager = found->second == kOn && may_be_eager(setup);
  if (const auto found = theirs.find("gpu bus"); found != theirs.end()) peer.gpu_bus = found->second;
  if (const auto found = theirs.find("boot id"); found != theirs.end()) all.there.boot_id = found->second;
  if (const auto found = theirs.find("same host"); found != theirs.end()) all.there.same_host = found->second;
  return all;
}

// Both ends come to the same decision, because each knows what both have said.
Status meet(BootstrapChannel& channel, bool connector, const LinkSetup& setup, const Identities& identities, Deadline deadline,
            LinkParts& parts) {
  const Host &here = identities.here, &there = identities.there;
  if (here.boot_id.empty() || here.boot_id != there.boot_id) return Status::ok();
  if (here.same_host != kOn || there.same_host != kOn) {
    parts.local = concat("TCP on one host: ", here.same_host != kOn ? "this end" : "the peer",
                         " does not share memory: set EndpointConfig::same_host and UCCL_TCPX_LOCAL=auto");
    return Status::ok();
  }
  TCPX_ASSIGN_OR_RETURN(auto meeting, meet_on_host(channel, connector, setup.reads_peer, deadline));
  parts.host = std::move(meeting.peer);
  parts.local = std::move(meeting.local);
  return Status::ok();
}

// Both ends open the connector's sending direction first. The flows are opened in the same order, so that the halves of one
// direction have the same number. What finds no way one way is not tried the other.
Status open_halves(BootstrapChannel& channel, bool connector, const LinkSetup& setup, size_t channels, Deadline deadline,
                   LinkParts& parts) {
  ChannelDevices devices, standing;
  for (size_t i = 0; i < channels; ++i) devices.push_back(setup.devices[i % setup.devices.size()]);
  const HandshakeWait wait{.deadline = deadline, .peer = &channel, .stop = channel.stop()};
  for (const bool sends : {connector, !connector}) {
    PipelineOptions options = setup.settings.options(sends ? Direction::kSend : Direction::kRecv);
    options.max_transfers = setup.max_transfers;
    if (sends) options.limits.budget = setup.budget;
    auto flow = parts.stream->open_flow();
    auto opened = sends ? open_sender(setup.plugin, devices, options, wait, std::move(flow), &standing)
                        : open_receiver(setup.plugin, devices, setup.receiver, options, wait, std::move(flow), &standing);
    // A peer that gives up closes its comms, which the plugin may tell before the channel does.
    if (!opened.is_ok()) return peers_reason(channel, opened.status(), deadline);
    (sends ? parts.send : parts.recv) = std::move(*opened);
    devices = standing;
  }
  return Status::ok();
}

Result<LinkParts> open_parts(BootstrapChannel& channel, bool connector, const LinkSetup& setup, Deadline deadline) {
  LinkParts parts;
  parts.peer_host = channel.peer().host();
  parts.peer_name = channel.peer().to_string();
  parts.interface = channel.interface();
  TCPX_RETURN_IF_ERROR(take_place(connector, setup, parts));
  TCPX_ASSIGN_OR_RETURN(const auto identities, exchange_identity(channel, connector, setup, parts.own_windows, deadline));
  parts.peer = identities.peer;
  parts.peers_windows = identities.windows;
  TCPX_RETURN_IF_ERROR(meet(channel, connector, setup, identities, deadline, parts));
  parts.eager = identities.eager && parts.host == nullptr;
  parts.stream = std::make_unique<ControlStream>();
  TCPX_RETURN_IF_ERROR(open_halves(channel, connector, setup, identities.channels, deadline, parts));
  TCPX_ASSIGN_OR_RETURN(auto socket, channel.detach(deadline));
  // Two ends that share memory need the TCP connection no longer.
  if (parts.host == nullptr) {
    parts.stream->attach(std::move(socket));
  } else {
    const SharedArea& area = parts.host->area;
    parts.stream->attach(std::make_unique<SharedStream>(area.ring(area.first()), area.ring(!area.first()), parts.host->socket));
  }
  return parts;
}

}  // namespace

Result<LinkParts> set_up_link(BootstrapChannel channel, bool connector, const LinkSetup& setup, Deadline deadline) {
  auto parts = open_parts(channel, connector, setup, deadline);
  if (parts.is_ok()) return parts;
  Status why = parts.status();
  if (setup.gives_way != nullptr && setup.gives_way->load())
    why = Status(Code::kExhausted, kSetUp, "others wait to be let in, and this end has been silent: try again");
  channel.leave(why);
  return why;
}

}  // namespace tcpx
