#include "programs/perf/perf_end.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <thread>

#include "base/text.h"
#include "device/no_unpacker.h"
#include "measure/plain_text.h"
#include "measure/free_memory.h"

namespace tcpx::perf {
namespace {

// Of what this file and perf_end_rows.cc exchange.
constexpr int kProtocolVersion = 3;
constexpr std::string_view kMustMatch[] = {"perf protocol", "mode",    "first size", "last size", "factor",
                                           "iterations",    "warm-up", "duration",   "channels",  "chunk bytes"};

// All slots of one direction: enough for the caches to be of no help, little enough to be filled and compared in no time.
constexpr uint64_t kSlotsOnGpu = uint64_t{2} << 30;
constexpr uint64_t kSlotsOnHost = uint64_t{512} << 20;

// Moving, filling and comparing go at this rate at least.
constexpr uint64_t kSlowestBytesPerMs = 50'000;

Result<uint64_t> number_of(const Parameters& parameters, const std::string& name) {
  uint64_t number = 0;
  const auto found = parameters.find(name);
  if (found != parameters.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  return Status(Code::kProtocol, "agree with the peer", concat('\'', name, "' is missing or malformed"));
}

/// Text of the peer that will be printed here.
Result<std::string> text_of(const Parameters& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  if (found != parameters.end() && is_plain_text(found->second)) return found->second;
  return Status(Code::kProtocol, "agree with the peer", concat('\'', name, "' is missing or not plain text"));
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    words.emplace_back(list.substr(0, comma));
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return words;
}

}  // namespace

PerfEnd::PerfEnd(const PerfOptions& options, bool is_server, int gpu, DefaultEndpoint& endpoint, const std::atomic<bool>& stop,
                 PerfListener listener)
    : options_(options), is_server_(is_server), gpu_(gpu), endpoint_(endpoint), stop_(stop), listener_(std::move(listener)) {}

Deadline PerfEnd::data_deadline(uint64_t bytes) const {
  return Deadline::after(options_.timeout + std::chrono::milliseconds(bytes / kSlowestBytesPerMs));
}

Status PerfEnd::prepare() {
  auto devices = endpoint_.channel_devices(gpu_, options_.pipeline.channels);
  if (!devices.is_ok()) return devices.status();
  devices_ = std::move(*devices);
  std::set<std::string> nics;
  for (const int device : devices_) {
    const auto properties = endpoint_.plugin->properties(device);
    if (!properties.is_ok()) return properties.status();
    nics.insert(properties->name);
  }
  nics_.assign(nics.begin(), nics.end());

  // The plugin takes the current GPU for that of the connection (27).
  TCPX_RETURN_IF_ERROR(endpoint_.memory->set_current_device(gpu_));
  auto lane = endpoint_.memory->make_copy_lane(gpu_);
  if (!lane.is_ok()) return lane.status();
  lane_ = std::move(*lane);
  return receives() ? make_unpacker() : Status::ok();
}

Status PerfEnd::make_unpacker() {
  if (options_.unpack == UnpackKind::kNone) {
    unpacker_ = make_no_unpacker();
    return Status::ok();
  }
  auto unpacker = endpoint_.make_unpacker(options_.unpack, gpu_);
  if (!unpacker.is_ok()) return unpacker.status();
  unpacker_ = std::move(*unpacker);
  return Status::ok();
}

// Half of what is free, for all that this machine's ends need of that kind of memory.
Result<uint64_t> PerfEnd::room_per_direction() const {
  const bool on_gpu = options_.memory == MemoryType::kCuda && endpoint_.memory->has_gpu();
  const Result<uint64_t> free_bytes = on_gpu ? free_gpu_bytes(gpu_) : free_host_bytes();
  if (!free_bytes.is_ok()) return free_bytes.status();
  const bool shared = options_.role == PerfRole::kLoopback && (!on_gpu || endpoint_.memory->device_count() == 1);
  const uint64_t directions = (sends() && receives() ? 2 : 1) * (shared ? 2 : 1);
  return *free_bytes / 2 / directions;
}

std::string PerfEnd::unpack() const {
  return receives() && options_.memory == MemoryType::kCuda ? unpacker_->name() : "";
}

std::string PerfEnd::describe() const {
  const bool has_gpu = endpoint_.memory->has_gpu();
  std::string memory = options_.memory == MemoryType::kHost ? "host memory" : has_gpu ? "GPU memory" : "stand-in for GPU memory";
  return concat(endpoint_.plugin->name(), " (", endpoint_.plugin_path, ", ABI v", endpoint_.plugin->abi_version(), "), ",
                has_gpu ? concat("GPU ", gpu_) : "no GPU", ", ", memory, unpack().empty() ? "" : concat(", unpack ", unpack()),
                ", window ", receives() ? concat(options_.pipeline.recv_window, sends() ? "/" : "") : "",
                sends() ? std::to_string(options_.pipeline.send_window) : "");
}

Status PerfEnd::agree(BootstrapChannel& channel) {
  const Result<uint64_t> room = room_per_direction();
  if (!room.is_ok()) return room.status();
  const bool on_gpu = options_.memory == MemoryType::kCuda && endpoint_.memory->has_gpu();
  std::string nics;
  for (const std::string& nic : nics_) nics += concat(nics.empty() ? "" : ",", nic);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.duration).count();
  const bool by_count = options_.duration <= Duration::zero();
  const Parameters mine = {{"perf protocol", std::to_string(kProtocolVersion)},
                           {"mode", title_of(options_.mode)},
                           {"first size", std::to_string(options_.sizes.min_bytes)},
                           {"last size", std::to_string(options_.sizes.max_bytes)},
                           {"factor", std::to_string(options_.sizes.factor)},
                           {"iterations", by_count ? std::to_string(options_.iterations) : "by time"},
                           {"warm-up", std::to_string(options_.warm_up)},
                           {"duration", concat(ms, " ms")},
                           {"channels", std::to_string(devices_.size())},
                           {"chunk bytes", std::to_string(options_.pipeline.chunk_bytes)},
                           {"room", std::to_string(*room)},
                           {"slot room", std::to_string(std::min(*room, on_gpu ? kSlotsOnGpu : kSlotsOnHost))},
                           {"verified", verifies() || !receives() ? "yes" : "no"},
                           {"nics", nics},
                           {"unpack", unpack()},
                           {"about", describe()}};
  const auto theirs = channel.exchange_parameters(mine, kMustMatch, deadline());
  if (!theirs.is_ok()) return theirs.status();
  slot_room_ = number_of(mine, "slot room").value();
  largest_ = *room;
  return take_peer(*theirs);
}

Status PerfEnd::take_peer(const Parameters& theirs) {
  const Result<uint64_t> room = number_of(theirs, "room"), slot_room = number_of(theirs, "slot room");
  if (!room.is_ok()) return room.status();
  if (!slot_room.is_ok()) return slot_room.status();
  const bool less_here = largest_ <= *room;
  largest_ = std::min(largest_, *room);
  slot_room_ = std::min(slot_room_, *slot_room);
  if (options_.sizes.max_bytes > largest_) {
    return {Code::kExhausted, "allocate memory",
            concat("a transfer of ", options_.sizes.max_bytes, " bytes; the ", less_here == is_server_ ? "server" : "client",
                   " has room for ", largest_, " in each direction (half of what is free)")};
  }
  const auto nics = text_of(theirs, "nics"), about = text_of(theirs, "about"), verified = text_of(theirs, "verified"),
             unpack_there = text_of(theirs, "unpack");
  for (const auto* text : {&nics, &about, &verified, &unpack_there}) {
    if (!text->is_ok()) return text->status();
  }
  head_.version = TCPX_VERSION;
  head_.mode = options_.mode;
  head_.server = is_server_ ? describe() : *about;
  head_.client = is_server_ ? *about : describe();
  head_.unpack = is_server_ ? unpack() : *unpack_there;
  head_.nics = is_server_ ? nics_ : words_of(*nics);
  head_.channels = static_cast<uint32_t>(devices_.size());
  head_.chunk_bytes = options_.pipeline.chunk_bytes;
  head_.warm_up = options_.warm_up;
  head_.iterations = options_.iterations;
  head_.duration = options_.duration;
  head_.verified = (verifies() || !receives()) && *verified == "yes";
  return Status::ok();
}

Status PerfEnd::open(BootstrapChannel& channel) {
  const bool both = options_.mode != PerfMode::kOneWay;
  // First the way from the client to the server.
  TCPX_RETURN_IF_ERROR(open_half(channel, !is_server_));
  return both ? open_half(channel, is_server_) : Status::ok();
}

Status PerfEnd::open_half(BootstrapChannel& channel, bool sending) {
  Half& half = sending ? send_ : receive_;
  uint64_t bytes = 0;
  for (const uint64_t size : sizes_of(options_.sizes)) bytes = std::max(bytes, slots_in(slot_room_, size) * slot_stride(size));
  auto memory = SlotMemory::create(*endpoint_.memory, options_.memory, gpu_, bytes);
  if (!memory.is_ok()) return memory.status();
  half.memory = std::move(*memory);

  const HandshakeWait wait{deadline(), &channel, &stop_};
  ConnectionOptions connection_options = options_.pipeline.options(sending ? Direction::kSend : Direction::kRecv);
  connection_options.limits.stall_limit = options_.timeout;
  const bool needs_pool = options_.memory == MemoryType::kCuda;
  const ReceiverParts parts{
      .unpacker = unpacker_.get(), .memory = endpoint_.memory.get(), .lane = needs_pool ? lane_.get() : nullptr, .tap = nullptr};
  auto connection = sending ? open_sender(*endpoint_.plugin, devices_, connection_options, wait)
                            : open_receiver(*endpoint_.plugin, devices_, parts, connection_options, wait);
  if (!connection.is_ok()) return connection.status();
  half.connection = std::move(*connection);
  const auto registered = half.connection->register_memory(half.memory->address(), half.memory->bytes(), options_.memory);
  if (!registered.is_ok()) return registered.status();
  half.registered = *registered;
  return Status::ok();
}

Status PerfEnd::close() {
  for (Half* half : {&send_, &receive_}) {
    if (half->connection) TCPX_RETURN_IF_ERROR(half->connection->close());
  }
  return Status::ok();
}

Status PerfEnd::run(BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(agree(channel));
  TCPX_RETURN_IF_ERROR(open(channel));
  listener_.on_begin(head_);
  for (const uint64_t bytes : sizes_of(options_.sizes)) {
    const Result<EndRow> mine = measure(channel, bytes);
    if (!mine.is_ok()) return mine.status();
    const auto received = channel.exchange_parameters(encode_row(*mine), {}, data_deadline(bytes));
    if (!received.is_ok()) return received.status();
    const Result<EndRow> theirs = decode_row(*received);
    if (!theirs.is_ok()) return theirs.status();
    listener_.on_row(is_server_ ? make_row(options_.mode, bytes, *mine, *theirs)
                                : make_row(options_.mode, bytes, *theirs, *mine));
  }
  // Nobody closes before both have all they wanted (13, 36).
  TCPX_RETURN_IF_ERROR(channel.barrier(deadline()));
  return close();
}

}  // namespace tcpx::perf
