#include "base/environment.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/mutex.h"
#include "base/port_range.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

constexpr VariableInfo kTable[] = {
    {Variable::kPluginPath, "UCCL_TCPX_PLUGIN_PATH", VariableKind::kText, "", 0, 0, 0, "", "",
     "Net plugin to load: the path of a shared library, or `embedded` for the software plugin inside this build. When unset, "
     "`/usr/local/tcpx/lib64/libnccl-net-tcpx.so`, then `/var/lib/tcpx/lib64/libnccl-net.so`, then the embedded plugin. A "
     "library "
     "that is named here, or that exists at one of the two places, and fails to load is an error."},
    {Variable::kNetwork, "UCCL_TCPX_NETWORK", VariableKind::kChoice, "", 0, 0, 0, "auto", "auto|tcpx|devmem|soft",
     "`tcpx`: GPUDirect-TCPX, or an error. `devmem`, `soft`: the software plugin, `devmem` with [device-memory TCP]"
     "(deploy_devmem.md) of upstream Linux, `soft` without. `auto`: GPUDirect-TCPX where it is installed, else the software plugin, "
     "with device-memory TCP if there is a GPU and header split is on. A NIC that lacks something is used by plain TCP, and a line of "
     "the log says what. `UCCL_TCPX_PLUGIN_PATH` comes first."},
    {Variable::kDevmemSocket, "UCCL_TCPX_DEVMEM_SOCKET", VariableKind::kText, "", 0, 0, 0, "/run/tcpx-devmem/daemon", "",
     "Path of the socket of [tcpx_devmemd](deploy_devmem.md#running)."},
    {Variable::kDebug, "UCCL_TCPX_DEBUG", VariableKind::kInteger, "", 0, 1, 0, "0", "",
     "1 logs at debug level and makes the test programs print request metadata, the device handle, every descriptor and the "
     "bounce "
     "probe."},
    {Variable::kLogLevel, "UCCL_TCPX_LOG_LEVEL", VariableKind::kChoice, "", 0, 0, 2, "warning",
     "debug|info|warning|error|notice|off",
     "Lowest severity that is logged to stderr. `error` leaves out notices, too. `notice` keeps only the line that says which "
     "plugin is in use and those that UCCL_TCPX_LAUNCH_DEBUG asks for."},
    {Variable::kBootstrapPort, "UCCL_TCPX_BOOTSTRAP_PORT", VariableKind::kInteger, "", 1, 65535, 12345, "12345", "",
     "TCP port on which a server waits for the exchange of connection handles."},
    {Variable::kPortRange, "UCCL_TCPX_PORT_RANGE", VariableKind::kPortRange, "", 1, 65535, 0, "", "",
     "Ports for all sockets that listen: the exchange of connection handles, an Endpoint, control and data sockets of the software "
     "plugin. Both ends are included, as in `50000-60000`; each listener takes a free one of them, at random. When unset, the "
     "kernel picks one of `net.ipv4.ip_local_port_range`. When all are in use, listening fails with TCPX_E_EXHAUSTED. A port "
     "that is given by number (`--port`, UCCL_TCPX_BOOTSTRAP_PORT, `EndpointConfig::port`) is taken even outside the range, with "
     "a "
     "notice. Sockets that connect are not affected. GPUDirect-TCPX ignores this range."},
    {Variable::kTimeoutMs, "UCCL_TCPX_TIMEOUT_MS", VariableKind::kInteger, "ms", 1, 3600000, 30000, "30000", "",
     "A connection fails when transfers wait and nothing advances for this long. In the test programs this is also the deadline of "
     "every other step: bootstrap, connect, accept."},
    {Variable::kNumChannels, "UCCL_TCPX_NUM_CHANNELS", VariableKind::kInteger, "channels", 1, 16, 0, "one per network device", "",
     "Channels (comms of the plugin) of one connection and direction. They are spread over the plugin's devices, those nearest "
     "to the "
     "GPU first; when there are more channels than devices, devices are used again. With GPUDirect-TCPX and a GPU all of them, 4 when "
     "unset, share the NIC of that GPU (see UCCL_TCPX_FAR_NICS), and the number must be the same at both ends. Otherwise both ends use "
     "the larger of their two numbers."},
    {Variable::kFarNics, "UCCL_TCPX_FAR_NICS", VariableKind::kInteger, "", 0, 1, 0, "0", "",
     "GPUDirect-TCPX: 1 lets the channels of a GPU go over NICs that are not [its own](deploy_a3.md#bare-vms), for a receive datapath "
     "manager (RxDM) that steers to others, too: with Google's the plugin ends the process. No effect with the software plugin."},
    {Variable::kRecvWindow, "UCCL_TCPX_RECV_WINDOW", VariableKind::kInteger, "chunks", 1, 128, 0,
     "128 on a single channel, else 16", "",
     "Most receives that a channel holds at once, from the post to the return of its pages. Over GPUDirect-TCPX at most 16. More "
     "than 16 only of host memory, and only while they have less than 32 MiB."},
    {Variable::kSendWindow, "UCCL_TCPX_SEND_WINDOW", VariableKind::kInteger, "chunks", 1, 128, 0,
     "128 on a single channel, else 12", "",
     "Most sends that a channel holds at once, more than 16 only while they have less than 32 MiB. GPUDirect-TCPX has 16 places "
     "and needs a few for itself. Several connections of an Endpoint that send at the same time have 12 MiB in flight together."},
    {Variable::kChunkBytes, "UCCL_TCPX_CHUNK_BYTES", VariableKind::kInteger, "bytes", 1, 4 * kMiB, 512 * 1024,
     "524288, and up to 2097152 in long transfers", "",
     "Transfers are cut into chunks of this size, each one request of the plugin. Must be the same at both ends. When neither end sets "
     "it, long transfers get longer chunks, which move faster and cost less: on one channel 1 MiB for transfers from 1 MiB on and 2 MiB "
     "from 8 MiB on, on several channels at most a sixteenth of a channel's part, never more than UCCL_TCPX_SOFT_POOL_BYTES, and not "
     "over GPUDirect-TCPX. With GPUDirect-TCPX the size may be at most NCCL_DYNAMIC_CHUNK_SIZE x the data sockets of the receiver, "
     "because that plugin otherwise loses pages of its pool."},
    {Variable::kFailover, "UCCL_TCPX_FAILOVER", VariableKind::kInteger, "", 0, 1, 0, "0", "",
     "1 carries on over the other channels when one fails: what it had not delivered is sent again, and a send counts as done "
     "only when "
     "the peer has said that it has everything. 0 ends the connection with an error that names the channel and its network "
     "interface. Must be the same at both ends."},
    {Variable::kOpTimeoutMs, "UCCL_TCPX_OP_TIMEOUT_MS", VariableKind::kInteger, "ms", 1, 3600000, 30000, "30000", "",
     "Endpoint: deadline of an operation, from its submission to its end, when the call gives none."},
    {Variable::kPeerTimeoutMs, "UCCL_TCPX_PEER_TIMEOUT_MS", VariableKind::kInteger, "ms", 3300, 120000, 30000, "30000", "",
     "Endpoint: how long a peer's host, or the path to it, may be silent before it counts as gone. Operations still end by their own "
     "deadlines. Software plugin: an idle connection also survives "
     "at least this much silence, even when the endpoint was given another time."},
    {Variable::kInlineBytes, "UCCL_TCPX_INLINE_BYTES", VariableKind::kInteger, "bytes", 0, 65536, 65536, "65536", "",
     "Endpoint: messages of at most this size travel inline on the control connection, in one round trip and without the chunks of "
     "the pipeline. 0 sends everything but empty messages through the pipeline. Each end decides for what it sends; [some "
     "connections](endpoint.md#how-bytes-travel) have a smaller bound."},
    {Variable::kMaxPeerBytes, "UCCL_TCPX_MAX_PEER_BYTES", VariableKind::kInteger, "bytes", 0, int64_t{1} << 50, 0, "0", "",
     "Endpoint: most memory that all its peers together may make it hold, at least 33554432. 0: an eighth of the machine's memory, or "
     "of what the control group (the container) may use. When it is used up, peers wait, and new connections are refused."},
    {Variable::kLocal, "UCCL_TCPX_LOCAL", VariableKind::kChoice, "", 0, 0, 0, "auto", "auto|off",
     "Endpoint: `auto` lets two endpoints of [one host](endpoint.md#one-host) share memory, if both run as one user; when that is not "
     "possible, the log line of the connection says why. `off` uses TCP there, too; one end with `off` is enough."},
    {Variable::kLocalDir, "UCCL_TCPX_LOCAL_DIR", VariableKind::kText, "", 0, 0, 0, "", "",
     "Endpoint: directory in which endpoints of one host meet when their network namespaces differ, as those of containers and pods do. "
     "Both must have mounted the same one, under whatever path. When unset, `/dev/shm/tcpx-UID`, with the user's number. It is "
     "made if it is missing; its parents are not."},
    {Variable::kSecurity, "UCCL_TCPX_SECURITY", VariableKind::kChoice, "", 0, 0, 0, "`auth` with a credential, else `off`",
     "off|auth|encrypt",
     "Endpoint: `auth` lets only ends with the same credential connect, and `encrypt` encrypts the software plugin's data, too; the "
     "vendor's has none of that. `off` lets anybody connect, as if no credential were set. While it is `off` by "
     "default, an Endpoint without a listen address serves only clients that connect to a data NIC's address or to loopback."},
    {Variable::kSecretFile, "UCCL_TCPX_SECRET_FILE", VariableKind::kText, "", 0, 0, 0, "", "",
     "File with a secret of 32 bytes or more: a regular file of this user or of root that neither group nor others can read. What "
     "it does is told in [security](security.md). Needs OpenSSL 3."},
    {Variable::kTlsCert, "UCCL_TCPX_TLS_CERT", VariableKind::kText, "", 0, 0, 0, "", "",
     "Instead of a secret: PEM file with this end's certificate, and those up to the CA. It must be good for servers and clients, since "
     "each end verifies the other's. Changed files are read anew for new connections; broken ones are not used, with a warning."},
    {Variable::kTlsKey, "UCCL_TCPX_TLS_KEY", VariableKind::kText, "", 0, 0, 0, "", "",
     "PEM file with its key, without a password; readable as UCCL_TCPX_SECRET_FILE."},
    {Variable::kTlsCa, "UCCL_TCPX_TLS_CA", VariableKind::kText, "", 0, 0, 0, "", "",
     "PEM file with the CAs that sign peers' certificates."},
    {Variable::kTlsPeers, "UCCL_TCPX_TLS_PEERS", VariableKind::kText, "", 0, 0, 0, "", "",
     "Names that peers may have, as in `head.svc,*.trainer.svc`; `*` is one label. The DNS names of a certificate count, its common name "
     "when it has none. When unset, any name."},
    {Variable::kChecksum, "UCCL_TCPX_CHECKSUM", VariableKind::kChoice, "", 0, 0, 0, "off", "off|on|retry",
     "Endpoint: `on` sums all bytes moved, at the sender in their source and at the receiver in their place. When "
     "the two differ, the operation fails at both ends with TCPX_E_CORRUPT. One end with it is enough. Nothing is inline "
     "then: a short send waits for its receive. With `retry` a write or read of this end is first started once more, which "
     "uses a slot again; a send is not. A GPU sums its own memory."},
    {Variable::kUnpackImpl, "UCCL_TCPX_UNPACK_IMPL", VariableKind::kChoice, "", 0, 0, 0, "auto", "auto|kernel|d2d|host|none",
     "How received fragments are gathered into the destination: a GPU kernel, device copies, or the host. `auto` is `kernel` on "
     "a "
     "machine with a GPU and `host` without one. Asking for what the machine cannot do is an error. `none` leaves the fragments "
     "where they arrived, to measure what the rest costs; only test_tcpx_perf takes it, and calls its numbers unverified."},
    {Variable::kUnpackBlocks, "UCCL_TCPX_UNPACK_BLOCKS", VariableKind::kInteger, "thread blocks", 1, 65535, 0, "no cap", "",
     "Most thread blocks of one launch of the unpack kernel, so that kernels running beside it keep their multiprocessors. When "
     "unset, a launch uses as many as make it fast."},
    {Variable::kLaunchDebug, "UCCL_TCPX_LAUNCH_DEBUG", VariableKind::kInteger, "", 0, 1, 0, "0", "",
     "1 measures the GPU time of each launch of the unpack kernel and logs a notice when it is seen to have finished: ticket, "
     "requests, fragments, bytes, thread blocks and threads, alignment, time, rate; and totals at the end. The host pays for "
     "it with every launch."},
    {Variable::kPerfSize, "UCCL_TCPX_PERF_SIZE", VariableKind::kInteger, "bytes", 1, int64_t{1} << 40, 64 * kMiB, "67108864", "",
     "Bytes of one transfer of test_tcpx_perf when neither -b nor -e is given."},
    {Variable::kPerfIters, "UCCL_TCPX_PERF_ITERS", VariableKind::kInteger, "transfers", 1, 1000000, 20, "20", "",
     "Timed transfers of each size in test_tcpx_perf when -n is not given."},
    {Variable::kSoftPoolBytes, "UCCL_TCPX_SOFT_POOL_BYTES", VariableKind::kInteger, "bytes", 64 * 1024, int64_t{1} << 32,
     256 * kMiB, "268435456", "",
     "Software plugin: size of the bounce pool, one per GPU and process, rounded up to 4096. A message to GPU memory must fit in "
     "it; "
     "messages wait while it is used up."},
    {Variable::kSoftIoThreads, "UCCL_TCPX_SOFT_IO_THREADS", VariableKind::kInteger, "threads", 1, 64, 0,
     "a quarter of the usable cores, 1 to 8", "",
     "Software plugin: threads that move bytes between sockets and memory, shared by all connections of the process. Unset, with "
     "fewer than eight usable cores, the progress threads and callers of endpoints move the bytes, which is faster there."},
    {Variable::kSoftSpinUs, "UCCL_TCPX_SOFT_SPIN_US", VariableKind::kInteger, "us", 0, 1000000, -1,
     "200, or 0 when the I/O threads leave fewer than two usable cores", "",
     "Software plugin: how long an I/O thread polls after its last work before it sleeps. Polling saves small messages a wake-up, but "
     "keeps a core busy while messages flow; idle connections cost nothing."},
    {Variable::kSoftZeroCopy, "UCCL_TCPX_SOFT_ZEROCOPY", VariableKind::kChoice, "", 0, 0, 0, "auto", "auto|off|on",
     "Software plugin: whether the kernel sends a GPU's staging memory without a copy (MSG_ZEROCOPY) and wakes the receiver of a long "
     "chunk for a sixteenth of its window at a time (SO_RCVLOWAT). `auto`: where bytes leave the host. Not measured over a NIC yet."},
    {Variable::kSoftConnectTimeoutMs, "UCCL_TCPX_SOFT_CONNECT_TIMEOUT_MS", VariableKind::kInteger, "ms", 1, 3600000, 10000,
     "10000", "",
     "Software plugin: deadline of one attempt to connect, handshake included. It waits so long for a network or a free port."},
    {Variable::kSocketIfname, "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", VariableKind::kText, "", 0, 0, 0, "", "",
     "Network interfaces to use: name prefixes separated by commas; `=` in front asks for exact names, `^` excludes. Same meaning "
     "as in GPUDirect-TCPX, but for an exact name given several times: `=lo,lo,lo,lo` makes four devices of one interface (software "
     "plugin). Where the kernel would let bytes leave by another interface, though this one leads to the target, as with two in one "
     "subnet, the software plugin binds its sockets to an interface that is named here, and to others if `arp_ignore` is set; hosts "
     "with several in one subnet need `net.ipv4.conf.all.arp_ignore=1` and `arp_announce=2`, or a peer's answers may come in by "
     "another, which ends the connection. "
     "Devices are numbered hardware first, then the fastest, then by name. When unset, `NCCL_SOCKET_IFNAME` (software "
     "plugin); when that is unset, too, every interface that is up and leads to other hosts: no bridge but one with a NIC in it, no "
     "link-local address, and tunnels, wireless and at last loopback only where there is no NIC. "
     "GPUDirect-TCPX then takes those whose names begin with `ib`, else the one in the subnet of `NET_COMM_ID`, else all but "
     "`docker` and `lo`, else these."},
    {Variable::kSocketFamily, "NCCL_GPUDIRECTTCPX_SOCKET_FAMILY", VariableKind::kChoice, "", 0, 0, 0, "any",
     "any|AF_INET|AF_INET6",
     "Address family of the interfaces' addresses. `any` prefers IPv4. GPUDirect-TCPX accepts no connection over IPv6: it reads "
     "the addresses as IPv4, and RxDM steers no others."},
    {Variable::kNcclSocketIfname, "NCCL_SOCKET_IFNAME", VariableKind::kText, "", 0, 0, 0, "", "",
     "NCCL's own choice of interfaces, with the same syntax; a port after `:` is ignored. The software plugin uses it when "
     "`NCCL_GPUDIRECTTCPX_SOCKET_IFNAME` is unset, and logs that it does. GPUDirect-TCPX does not read it."},
    {Variable::kNcclSocketFamily, "NCCL_SOCKET_FAMILY", VariableKind::kChoice, "", 0, 0, 0, "any", "any|AF_INET|AF_INET6",
     "NCCL's own choice of the address family. The software plugin uses it when `NCCL_GPUDIRECTTCPX_SOCKET_FAMILY` is unset, and logs "
     "that it does. GPUDirect-TCPX does not read it."},
    {Variable::kCtrlDev, "NCCL_GPUDIRECTTCPX_CTRL_DEV", VariableKind::kText, "", 0, 0, 0, "", "",
     "Network interface over which control sockets connect; they carry no data, only the news that a peer has gone. When unset, "
     "that of the data sockets."},
    {Variable::kTxBindings, "NCCL_GPUDIRECTTCPX_TX_BINDINGS", VariableKind::kText, "", 0, 0, 0, "", "",
     "Cores for the I/O threads that send, per interface, as in `eth1:8-21,112-125;eth2:8-21,112-125`. Interfaces and directions "
     "with the same cores share UCCL_TCPX_SOFT_IO_THREADS threads, or one per core when there are fewer cores; what is not named "
     "here "
     "shares threads that run anywhere."},
    {Variable::kRxBindings, "NCCL_GPUDIRECTTCPX_RX_BINDINGS", VariableKind::kText, "", 0, 0, 0, "", "",
     "The same for the I/O threads that receive."},
    {Variable::kNsocksPerThread, "NCCL_NSOCKS_PERTHREAD", VariableKind::kInteger, "sockets", 1, 8, 0,
     "8 / devices, 2 at least; below 32 usable cores 4 / devices, 1 at least", "",
     "Data sockets of a connection = this x NCCL_SOCKET_NTHREADS, at most 16. The listening side decides for both ends. By "
     "default "
     "the devices, which are used side by side, share as many sockets as the machine feeds."},
    {Variable::kSocketNthreads, "NCCL_SOCKET_NTHREADS", VariableKind::kInteger, "", 1, 16, 1, "1", "",
     "Second factor of the number of data sockets. (The software plugin shares its threads; see UCCL_TCPX_SOFT_IO_THREADS.)"},
    {Variable::kDynamicChunkSize, "NCCL_DYNAMIC_CHUNK_SIZE", VariableKind::kInteger, "bytes", 4096, int64_t{1} << 30, 512 * 1024,
     "524288", "",
     "Largest piece of a message that travels on one data socket, rounded up to 4096. The listening side decides for both ends. "
     "Not needed by the software plugin; GPUDirect-TCPX moves nothing without it, so it is set to the default before that plugin "
     "is initialised. Digits only: `512K` is an error here, and 512 to GPUDirect-TCPX."},
    {Variable::kUnixClientPrefix, "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX", VariableKind::kText, "", 0, 0, 0, "/run/tcpx", "",
     "GPUDirect-TCPX: directory of the sockets of the receive datapath manager (RxDM). The plugin's own default is `/tmp`, the "
     "manager's `/run/tcpx`, so it is set to the latter before the plugin is initialised. Not used by the software plugin."},
    {Variable::kFlowSteeringWaitUs, "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", VariableKind::kInteger, "us", 1,
     60'000'000, 1'000'000, "1000000", "",
     "GPUDirect-TCPX: how long an accept waits for the rules that steer its flows. The plugin's own default is 5 s, so it is set "
     "to this one before the plugin is initialised. Not used by the software plugin."},
    {Variable::kPortBegin, "NCCL_GPUDIRECTTCPX_PORT_BEGIN", VariableKind::kInteger, "", 1, 65535, 0, "", "",
     "With NCCL_GPUDIRECTTCPX_PORT_END, the same setting as UCCL_TCPX_PORT_RANGE, which takes precedence. Set both or neither: one "
     "alone is an error. GPUDirect-TCPX itself reads neither."},
    {Variable::kPortEnd, "NCCL_GPUDIRECTTCPX_PORT_END", VariableKind::kInteger, "", 1, 65535, 0, "", "",
     "The last port of the range that NCCL_GPUDIRECTTCPX_PORT_BEGIN begins."},
};

// In the order of LauncherVariable.
constexpr const char* kLauncherVariables[] = {"OMPI_COMM_WORLD_RANK",
                                              "OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "PMI_RANK",
                                              "PMI_SIZE",
                                              "MPI_LOCALRANKID",
                                              "SLURM_PROCID",
                                              "SLURM_NTASKS",
                                              "SLURM_LOCALID"};

/// The value of a variable of the environment. nullptr when it is unset or empty.
const char* raw(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}
/// A value that environment_set has set. Earlier values are kept, because another thread may still read them.
struct Given {
  const std::string value;
  const Given* const before;
};
std::array<std::atomic<const Given*>, std::size(kTable)> given{};  // by variable

const char* raw(Variable id) {
  const Given* const last = given[static_cast<size_t>(id)].load(std::memory_order_acquire);
  return last != nullptr && !last->value.empty() ? last->value.c_str() : raw(environment_info(id).name);
}
const char* raw(LauncherVariable id) {
  return raw(kLauncherVariables[static_cast<size_t>(id)]);
}

/// nullopt when `text` is not a decimal integer.
std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Status bad_value(const VariableInfo& info, std::string_view value, const std::string& expected) {
  return Status(Code::kBadConfig, "read environment", concat(info.name, "=\"", value, "\": expected ", expected));
}

Result<int64_t> integer_of(const VariableInfo& info, std::string_view value) {
  const auto number = parse_integer(value);
  if (!number || *number < info.min || *number > info.max) {
    return bad_value(info, value,
                     concat("an integer from ", info.min, " to ", info.max, *info.unit != '\0' ? " " : "", info.unit));
  }
  return *number;
}

Result<int64_t> choice_of(const VariableInfo& info, std::string_view value) {
  std::string_view rest(info.choices);
  for (int64_t index = 0;; ++index) {
    const size_t bar = rest.find('|');
    if (rest.substr(0, bar) == value) return index;
    if (bar == std::string_view::npos) return bad_value(info, value, concat("one of ", info.choices));
    rest.remove_prefix(bar + 1);
  }
}

}  // namespace

std::span<const VariableInfo> environment_table() {
  return kTable;
}

const VariableInfo& environment_info(Variable id) {
  return kTable[static_cast<size_t>(id)];
}

Result<int64_t> environment_integer(Variable id) {
  const VariableInfo& info = environment_info(id);
  const char* value = raw(id);
  return value == nullptr ? Result<int64_t>(info.default_integer) : integer_of(info, value);
}

Result<int64_t> environment_choice(Variable id) {
  const VariableInfo& info = environment_info(id);
  const char* value = raw(id);
  return value == nullptr ? Result<int64_t>(info.default_integer) : choice_of(info, value);
}

Status environment_check(const VariableInfo& info, const std::string& value) {
  if (value.empty()) return Status::ok();
  switch (info.kind) {
    case VariableKind::kText:
      return Status::ok();
    case VariableKind::kInteger:
      return integer_of(info, value).status();
    case VariableKind::kChoice:
      return choice_of(info, value).status();
    case VariableKind::kPortRange:
      return parse_port_range(value) ? Status::ok() : bad_value(info, value, "two ports as in 50000-60000, from 1 to 65535");
  }
  return Status::ok();
}

Status environment_check_all() {
  for (const VariableInfo& info : kTable) {
    if (const char* value = raw(info.id)) TCPX_RETURN_IF_ERROR(environment_check(info, value));
  }
  return Status::ok();
}

std::vector<std::pair<std::string, std::string>> environment_snapshot() {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    all.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

std::string environment_text(Variable id) {
  const char* value = raw(id);
  return value != nullptr ? value : environment_info(id).default_text;
}

bool environment_is_set(Variable id) {
  return raw(id) != nullptr;
}

Status environment_set(Variable id, const std::string& value) {
  TCPX_RETURN_IF_ERROR(environment_check(environment_info(id), value));
  auto& last = given[static_cast<size_t>(id)];
  static Mutex mutex;
  const MutexLock lock(mutex);
  last.store(new Given{value, last.load(std::memory_order_relaxed)}, std::memory_order_release);
  return Status::ok();
}

bool environment_preset(Variable id, const std::string& value) {
  if (environment_is_set(id)) return false;
  return ::setenv(environment_info(id).name, value.c_str(), 1) == 0;
}

std::string_view launcher_variable_name(LauncherVariable id) {
  return kLauncherVariables[static_cast<size_t>(id)];
}

bool launcher_variable_is_set(LauncherVariable id) {
  return raw(id) != nullptr;
}

Result<std::optional<int64_t>> launcher_integer(LauncherVariable id) {
  const char* value = raw(id);
  if (value == nullptr) return std::optional<int64_t>();
  const auto number = parse_integer(value);
  if (!number) {
    return Status(Code::kBadConfig, "read environment",
                  concat(launcher_variable_name(id), "=\"", value, "\": expected an integer"));
  }
  return number;
}

}  // namespace tcpx
