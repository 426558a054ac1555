#include "endpoint/link_setup.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "endpoint/same_host.h"
#include "endpoint/whereabouts.h"
#include "lanes/lanes.h"
#include "transfer/bootstrap.h"
#include "transfer/run.h"
#include "wire/messages.h"

namespace tcpx {
namespace {

constexpr const char* kSetUp = "set up link";
// Longest inline message within a host if an end has a GPU: GPUs copy longer ones faster by themselves (NVLink, PCIe).
constexpr uint32_t kInlineBesideGpu = 16384;
// And between hosts with `auth`: the stream encrypts, data sockets do not. 64 KiB of host memory took 55 us inline and 30 over sockets,
// 16 KiB 23 and 24 (16 cores); on two cores 64 KiB took as long either way.
constexpr uint32_t kInlineWithAuth = 32768;

constexpr std::string_view role_of(bool connector) {
  return connector ? "connect" : "accept";
}

// Reads the peer's number `name`, which must lie within [least, most].
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

// Acceptor: refuses a connector that has come to the wrong endpoint. The peer gets the text.
Status check_wishes(const EndpointIdentity& mine, const EndpointIdentity& peer) {
  if (peer.wanted_instance != 0 && peer.wanted_instance != mine.instance)
    return Status(Code::kPeerGone, kSetUp, "another endpoint listens there now (restarted?)");
  if (peer.wanted_gpu_idx >= 0 && peer.wanted_gpu_idx != mine.gpu_idx) {
    return Status(Code::kMismatch, kSetUp,
                  concat("GPU ", peer.wanted_gpu_idx, " is wanted, the endpoint that listens has GPU ", mine.gpu_idx));
  }
  return Status::ok();
}

// Acceptor: asks the application about a connector. It learns no more than that it was refused.
Status ask_application(const LinkSetup& setup, const LinkParts& parts, Deadline deadline) {
  if (setup.accepts == nullptr || !*setup.accepts) return Status::ok();
  bool accepted = false;
  try {
    accepted = (*setup.accepts)({.ip = parts.peer_host, .remote_gpu_idx = parts.peer.gpu_idx, .name = parts.proved});
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, "EndpointConfig::accepts has thrown: ", error.what());
  } catch (...) {
    log(LogLevel::kWarning, "EndpointConfig::accepts has thrown");
  }
  if (deadline.expired()) return Status(Code::kTimeout, kSetUp, "EndpointConfig::accepts took too long");
  if (accepted) return Status::ok();
  return Status(Code::kMismatch, kSetUp,
                concat("the application that listens does not accept ", parts.proved.empty() ? "" : concat(parts.proved, " at "),
                       parts.peer_host));
}

// Without a credential at one end they do not come so far. One that says nothing knows no encryption.
Status check_protection(const Parameters& theirs, bool connector, Protection mine) {
  const auto found = theirs.find("security");
  const std::string peer = found == theirs.end() ? "auth" : printable(std::as_bytes(std::span(found->second)), 32);
  const std::string own(name_of(mine)), encrypt(name_of(Protection::kEncrypt));
  if ((own == encrypt) == (peer == encrypt)) return Status::ok();
  return Status(Code::kMismatch, kSetUp,
                concat("UCCL_TCPX_SECURITY is ", connector ? own : peer, " at the connecting end and ", connector ? peer : own,
                       " at the accepting one: set it alike at both"));
}

constexpr const char *kOn = "on", *kOff = "off";

// As each end tells the size of its own windows.
constexpr std::string_view text_of(CreditWindows::Size windows) {
  return windows == CreditWindows::Size::kWhole ? "whole" : "small";
}

// Takes the link's place in PeerMemory. While little is taken its windows are whole, so that it runs at full speed without asking.
Status take_place(bool connector, const LinkSetup& setup, LinkParts& parts) {
  constexpr uint64_t kSpendFreely = 8;  // while less than 1/8 of all is taken
  constexpr uint64_t kWholeInstead = kMaxHeldBytes - kWindows * kSmallWindowBytes;
  if (setup.peers == nullptr) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(parts.place, setup.peers->admit(parts.peer_host, connector));
  if (!parts.place.grow(kWholeInstead, kSpendFreely)) parts.own_windows = CreditWindows::Size::kSmall;
  return Status::ok();
}

// An eager link must be able to discard bytes into one staging buffer of host memory (lanes/net/net_lane.h); steered flows cannot.
bool may_be_eager(const LinkSetup& setup) {
  return setup.eager && !setup.plugin.steers_flows() &&
         std::max(setup.settings.chunk_bytes, setup.settings.longest_chunk_bytes) <= kStagingBytes;
}

struct Host {
  std::string boot_id;
  std::string same_host;  // kOn: wants to share memory
  std::string network;    // which network namespace; "": not told
};

/// Parameters from the first frame of the peer.
struct Identities {
  std::string checksums;
  uint64_t sum_seed = 0;
  EndpointIdentity peer;
  CreditWindows::Size windows = CreditWindows::Size::kWhole;  // the peer's
  bool eager = false;                                         // both ends can be eager
  Host there;
  size_t peer_channels = 0;  // number of the peer's devices
  size_t channels = 0;       // of the connection, each way
};

Host this_host(const LinkSetup& setup) {
  const uint64_t network = network_of_thread();
  return {.boot_id = setup.boot_id.empty() ? boot_id() : setup.boot_id,
          .same_host = setup.same_host ? kOn : "off",
          .network = network == 0 ? "" : std::to_string(network)};
}

Parameters identity_of(bool connector, const LinkSetup& setup, CreditWindows::Size windows, const Host& here, uint64_t sum_seed) {
  const EndpointIdentity& mine = setup.identity;
  return {{"role", std::string(role_of(connector))},
          {"instance", std::to_string(mine.instance)},
          {"gpu", std::to_string(mine.gpu_idx)},
          {"wanted gpu", std::to_string(mine.wanted_gpu_idx)},
          {"wanted instance", std::to_string(mine.wanted_instance)},
          {"inline bytes", std::to_string(mine.inline_bytes)},
          {"channels", std::to_string(setup.devices.size())},
          {"windows", std::string(text_of(windows))},
          {"eager", may_be_eager(setup) ? kOn : "off"},
          {"checksums", setup.checksums ? kOn : kOff},
          {"sum seed", std::to_string(sum_seed)},
          {"security", std::string(name_of(setup.protection))},
          {"gpu bus", mine.gpu_bus},
          {"boot id", here.boot_id},
          {"same host", here.same_host},
          {"network", here.network}};
}

Result<Identities> read_identity(const Parameters& theirs, bool connector, const LinkSetup& setup) {
  const EndpointIdentity& mine = setup.identity;
  const size_t channels = setup.devices.size();
  Identities all;
  const auto role = theirs.find("role");
  if (role == theirs.end() || role->second != role_of(!connector)) {
    return Status(Code::kMismatch, kSetUp,
                  concat("this end means to ", role_of(connector), ", the peer does not mean to ", role_of(!connector)));
  }
  TCPX_RETURN_IF_ERROR(check_protection(theirs, connector, setup.protection));
  EndpointIdentity& peer = all.peer;
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  constexpr uint64_t kMaxInstance = std::numeric_limits<uint64_t>::max();
  size_t& peer_channels = all.peer_channels;
  TCPX_RETURN_IF_ERROR(read(theirs, "instance", uint64_t{0}, kMaxInstance, peer.instance));
  TCPX_RETURN_IF_ERROR(read(theirs, "gpu", 0, kMaxInt, peer.gpu_idx));
  TCPX_RETURN_IF_ERROR(read(theirs, "wanted gpu", -1, kMaxInt, peer.wanted_gpu_idx));
  TCPX_RETURN_IF_ERROR(read(theirs, "wanted instance", uint64_t{0}, kMaxInstance, peer.wanted_instance));
  TCPX_RETURN_IF_ERROR(read(theirs, "inline bytes", uint32_t{0}, kMaxInlineBytes, peer.inline_bytes));
  TCPX_RETURN_IF_ERROR(read(theirs, "channels", size_t{1}, size_t{kMaxChannels}, peer_channels));
  if (!connector) TCPX_RETURN_IF_ERROR(check_wishes(mine, peer));
  // The end with fewer devices uses them repeatedly. Steered flows have one NIC, and there the number is the user's choice.
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
  if (const auto found = theirs.find("checksums"); found != theirs.end()) {
    all.checksums = found->second;
    TCPX_RETURN_IF_ERROR(read(theirs, "sum seed", uint64_t{0}, kMaxInstance, all.sum_seed));
  }
  if (const auto found = theirs.find("gpu bus"); found != theirs.end()) peer.gpu_bus = found->second;
  if (const auto found = theirs.find("boot id"); found != theirs.end()) all.there.boot_id = found->second;
  if (const auto found = theirs.find("same host"); found != theirs.end()) all.there.same_host = found->second;
  if (const auto found = theirs.find("network"); found != theirs.end()) all.there.network = found->second;
  return all;
}

ChannelDevices round_devices(const LinkSetup& setup, size_t channels) {
  ChannelDevices devices;
  for (size_t i = 0; i < channels; ++i) devices.push_back(setup.devices[i % setup.devices.size()]);
  return devices;
}

/// One end of the set-up. To save round trips, settings and handles of both directions travel with the identities: the connector tells
/// all that it can before it has heard anything, and the acceptor answers with all of its own.
class SettingUp {
 public:
  SettingUp(bool connector, const LinkSetup& setup, Deadline deadline)
      : connector_(connector), setup_(setup), deadline_(deadline) {}

  /// Connector: sends its first frames.
  Status begin(BootstrapChannel& channel) {
    TCPX_RETURN_IF_ERROR(tell_identity(channel));
    return tell_settings(channel, setup_.devices.size());
  }
  /// Does the rest of the set-up, at both ends.
  Result<LinkParts> go_on(BootstrapChannel& channel);

 private:
  Status tell_identity(BootstrapChannel& channel);
  Status tell_settings(BootstrapChannel& channel, size_t channels);
  Status meet(BootstrapChannel& channel, const Host& there);
  Status agree_on_checksums(const Identities& peer);
  uint32_t most_inline() const;

  const bool connector_;
  const LinkSetup& setup_;
  const Deadline deadline_;
  LinkParts parts_;
  Host here_;
  uint64_t sum_seed_ = 0;
  std::optional<PipelineOpening> opening_;
};

Status SettingUp::tell_identity(BootstrapChannel& channel) {
  parts_.peer_host = channel.peer().host();
  parts_.peer_name = channel.peer().to_string();
  parts_.proved = channel.stream().peer_name();
  parts_.interface = channel.interface();
  TCPX_RETURN_IF_ERROR(take_place(connector_, setup_, parts_));
  here_ = this_host(setup_);
  TCPX_ASSIGN_OR_RETURN(sum_seed_, random_id());
  return channel.send_parameters(identity_of(connector_, setup_, parts_.own_windows, here_, sum_seed_), deadline_);
}

Status SettingUp::tell_settings(BootstrapChannel& channel, size_t channels) {
  PipelineOptions send = setup_.settings.options(Direction::kSend), recv = setup_.settings.options(Direction::kRecv);
  send.max_transfers = recv.max_transfers = setup_.max_transfers;
  send.limits.budget = setup_.budget;
  TCPX_ASSIGN_OR_RETURN(
      auto opening, PipelineOpening::begin(setup_.plugin, round_devices(setup_, channels),
                                           {.send = send, .recv = recv, .receiver = setup_.receiver, .recv_first = !connector_}));
  opening_ = std::move(opening);
  return opening_->tell(channel, deadline_);
}

// The seed is the connector's. It travels as everything here does: whoever can read it could change bytes without being noticed.
Status SettingUp::agree_on_checksums(const Identities& peer) {
  if (!setup_.checksums && peer.checksums != kOn) return Status::ok();
  if (peer.checksums != kOn && peer.checksums != kOff)
    return Status(Code::kMismatch, kSetUp, "UCCL_TCPX_CHECKSUM is on at one end, and the other has no checksums: it is older");
  parts_.sum_key = std::make_shared<const ByteSumKey>(connector_ ? sum_seed_ : peer.sum_seed);
  return Status::ok();
}

// Both ends decide alike, because each knows what both have said.
Status SettingUp::meet(BootstrapChannel& channel, const Host& there) {
  if (here_.boot_id.empty() || here_.boot_id != there.boot_id) return Status::ok();
  if (here_.same_host != kOn || there.same_host != kOn) {
    parts_.local = concat("TCP on one host: ", here_.same_host != kOn ? "this end" : "the peer",
                          " does not share memory: set EndpointConfig::same_host and UCCL_TCPX_LOCAL=auto");
    return Status::ok();
  }
  const MeetingTerms terms{.connector = connector_,
                           .reads = setup_.reads_peer,
                           .apart = !here_.network.empty() && !there.network.empty() && here_.network != there.network,
                           .directory = setup_.local_dir};
  TCPX_ASSIGN_OR_RETURN(auto meeting, meet_on_host(channel, terms, deadline_));
  parts_.host = std::move(meeting.peer);
  parts_.local = std::move(meeting.local);
  return Status::ok();
}

// Most bytes of an inline message, whatever the ends have set: longer ones go better in another way.
uint32_t SettingUp::most_inline() const {
  if (parts_.sum_key != nullptr) return 0;  // lanes alone compare checksums of memory with those of its source
  if (parts_.host == nullptr) return setup_.protection == Protection::kAuth ? kInlineWithAuth : kMaxInlineBytes;
  return setup_.identity.gpu_bus.empty() && parts_.peer.gpu_bus.empty() ? kMaxInlineBytes : kInlineBesideGpu;
}

Result<LinkParts> SettingUp::go_on(BootstrapChannel& channel) {
  if (!connector_) TCPX_RETURN_IF_ERROR(tell_identity(channel));
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.receive_parameters(deadline_));
  TCPX_ASSIGN_OR_RETURN(const auto identities, read_identity(theirs, connector_, setup_));
  parts_.peer = identities.peer;
  parts_.peers_windows = identities.windows;
  if (!connector_) TCPX_RETURN_IF_ERROR(ask_application(setup_, parts_, deadline_));
  TCPX_RETURN_IF_ERROR(agree_on_checksums(identities));
  if (!connector_) {
    TCPX_RETURN_IF_ERROR(tell_settings(channel, identities.channels));
  } else {
    TCPX_RETURN_IF_ERROR(opening_->add_channels(round_devices(setup_, identities.channels), channel, deadline_));
  }
  TCPX_RETURN_IF_ERROR(opening_->hear(channel, connector_ ? identities.channels : identities.peer_channels, deadline_));
  TCPX_RETURN_IF_ERROR(meet(channel, identities.there));
  parts_.eager = identities.eager && parts_.host == nullptr;
  parts_.inline_bytes = setup_.identity.inline_bytes;
  for (uint32_t* const bytes : {&parts_.inline_bytes, &parts_.peer.inline_bytes}) *bytes = std::min(*bytes, most_inline());
  const HandshakeWait wait{.deadline = deadline_, .peer = &channel, .stop = channel.stop()};
  auto opened = opening_->finish(
      wait,
      {.send = channel.stream().mailbox_to(false), .recv = channel.stream().mailbox_to(true), .sender_places = parts_.eager});
  // A peer that gives up closes its comms. The plugin may notice that before the peer's reason has come over the channel.
  if (!opened.is_ok()) return peers_reason(channel, opened.status(), deadline_);
  parts_.send = std::move(opened->send);
  parts_.recv = std::move(opened->recv);
  // Two ends that share memory no longer need the TCP connection once both are done.
  if (parts_.host != nullptr) TCPX_RETURN_IF_ERROR(channel.barrier(deadline_));
  TCPX_ASSIGN_OR_RETURN(parts_.stream, channel.hand_over());
  if (parts_.host != nullptr) {
    const SharedArea& area = parts_.host->area;
    parts_.stream->attach(std::make_unique<SharedStream>(area.ring(area.first()), area.ring(!area.first()), parts_.host->socket));
  }
  return std::move(parts_);
}

// Tells the peer if the set-up has failed.
Result<LinkParts> end_with(Result<LinkParts> parts, BootstrapChannel& channel, const LinkSetup& setup) {
  if (parts.is_ok()) return parts;
  Status why = parts.status();
  if (setup.gives_way != nullptr && setup.gives_way->load())
    why = Status(Code::kExhausted, kSetUp, "others wait to be let in, and this end has been silent: try again");
  channel.leave(why);
  return why;
}

}  // namespace

Result<LinkParts> set_up_link(BootstrapChannel channel, bool connector, const LinkSetup& setup, Deadline deadline) {
  SettingUp end(connector, setup, deadline);
  const Status begun = connector ? end.begin(channel) : Status::ok();
  return end_with(begun.is_ok() ? end.go_on(channel) : Result<LinkParts>(begun), channel, setup);
}

Result<LinkParts> connect_link(const std::string& hosts, uint16_t port, const LinkSetup& setup, Deadline deadline,
                               const std::atomic<bool>* stop) {
  std::optional<SettingUp> end;
  TCPX_ASSIGN_OR_RETURN(auto channel, bootstrap_connect(
                                          hosts, port, deadline, stop,
                                          [&](BootstrapChannel& fresh) {
                                            end.emplace(true, setup, deadline);
                                            return end->begin(fresh);
                                          },
                                          setup.tls));
  return end_with(end->go_on(channel), channel, setup);
}

}  // namespace tcpx
