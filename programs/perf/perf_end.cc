// First the client says what to measure, and the server prepares for that. In a row the client says how many transfers come next; both ends fill what they will send, meet at a barrier, move the data, and compare
// what they received. Only the moving is timed.
#include "programs/perf/perf_end.h"

#include <algorithm>
#include <climits>
#include <set>
#include <string_view>

#include "base/text.h"
#include "base/words.h"
#include "device/gpu_pattern.h"
#include "device/unpacker_factory.h"
#include "measure/parameter_reader.h"
#include "measure/resources.h"
#include "net/plugin_loader.h"
#include "programs/perf/perf_request.h"
#include "transfer/pipeline_setup.h"
#include "transfer/run.h"

namespace tcpx::perf {
namespace {

constexpr std::string_view kAgree = "agree with the peer";

// All slots of one direction: enough for the caches to be of no help, little enough to be filled and compared in no time.
constexpr uint64_t kSlotsOnGpu = (uint64_t{2} << 30) - kPageBytes;
constexpr uint64_t kSlotsOnHost = uint64_t{512} << 20;
static_assert(std::max(kSlotsOnGpu, kSlotsOnHost) <= INT_MAX, "a plugin of version 7 registers no more at once");

// Moving, filling and comparing go at this rate at least.
constexpr uint64_t kSlowestBytesPerMs = 50'000;

}  // namespace

bool PerfEnd::verified() const {
  return !place_.receives() || !is_pipeline() || options_.unpack != UnpackKind::kNone || options_.memory == MemoryType::kHost;
}

uint32_t PerfEnd::channels() const {
  return is_pipeline() || options_.layer == Layer::kRawTcp ? std::max(options_.pipeline.channels, 1u) : 1;
}

// As a pipeline over this plugin has them.
uint32_t PerfEnd::longest_chunk_bytes() const {
  return is_pipeline() && !place_.machine.plugin->message_cut() ? options_.pipeline.longest_chunk_bytes : 0;
}

std::string PerfEnd::unpacker() const {
  return is_pipeline() ? pipeline_->unpacker_name() : "";
}

std::string PerfEnd::describe() const {
  if (options_.layer == Layer::kRawTcp) return "host memory";
  const LocalMachine& machine = place_.machine;
  const bool has_gpu = machine.memory->has_gpu();
  const std::string memory = concat(has_gpu ? concat("GPU ", place_.gpu) : "no GPU", ", ",
                                    options_.memory == MemoryType::kHost ? "host memory"
                                    : has_gpu                            ? "GPU memory"
                                                                         : "stand-in for GPU memory");
  if (!is_pipeline()) return concat(machine.plugin->name(), " (", machine.plugin_path, "), ", memory);
  const PipelineSettings& pipeline = options_.pipeline;
  const auto window = [&](Direction direction, uint32_t wanted) {
    return wanted != 0 ? wanted : default_window(*machine.plugin, direction, channels());
  };
  return concat(machine.plugin->name(), " (", machine.plugin_path, ", ABI v", machine.plugin->abi_version(), "), ", memory,
                unpacker().empty() ? "" : concat(", unpack ", unpacker()), ", window ",
                place_.receives() ? concat(window(Direction::kRecv, pipeline.recv_window), place_.sends() ? "/" : "") : "",
                place_.sends() ? std::to_string(window(Direction::kSend, pipeline.send_window)) : "");
}

Deadline PerfEnd::data_deadline(uint64_t bytes) const {
  return Deadline::after(options_.timeout + std::chrono::milliseconds(bytes / kSlowestBytesPerMs));
}

Deadline PerfEnd::round_deadline(uint64_t bytes) const {
  return data_deadline(bytes * slots_in(slot_room_, bytes) * 2);
}

EndSetup PerfEnd::end_setup() const {
  EndSetup setup;
  setup.kind = options_.layer;
  setup.leads = !is_server();
  setup.memory = options_.memory;
  setup.gpu = place_.gpu;
  setup.same_host = options_.same_host;
  setup.streams = is_pipeline() ? 1 : channels();
  setup.request_bytes = options_.pipeline.chunk_bytes;
  const std::string& path = place_.machine.plugin_path;
  if (path != kEmbedded) path.copy(setup.plugin, sizeof setup.plugin - 1);
  return setup;
}

RowSetup PerfEnd::row_of(uint64_t bytes) const {
  return {.pattern = options_.mode,
          .message_bytes = bytes,
          .seed = round_,
          .slots = slots_in(slot_room_, bytes),
          .stride = is_pipeline() ? slot_stride(bytes) : 0};
}

Status PerfEnd::prepare() {
  // The plugin takes the current GPU for that of the connection (27).
  TCPX_RETURN_IF_ERROR(place_.machine.memory->set_current_device(place_.gpu));
  if (!is_pipeline()) return Status::ok();
  return is_server() ? make_unpacker() : make_pipeline();
}

Status PerfEnd::make_unpacker() {
  if (!place_.receives() || unpacker_ != nullptr) return Status::ok();
  if (options_.unpack == UnpackKind::kNone) {
    unpacker_ = make_no_unpacker();
  } else {
    TCPX_ASSIGN_OR_RETURN(unpacker_, place_.machine.make_unpacker(options_.unpack, place_.gpu));
  }
  return Status::ok();
}

Status PerfEnd::make_pipeline() {
  LocalMachine& machine = place_.machine;
  options_.pipeline.stall_limit = options_.timeout;
  ChannelDevices devices;
  if (place_.devices != nullptr) {
    devices = *place_.devices;
  } else {
    TCPX_ASSIGN_OR_RETURN(devices, machine.channel_devices(place_.gpu, options_.pipeline.channels));
  }
  std::set<std::string> nics;
  for (const int device : devices) {
    TCPX_ASSIGN_OR_RETURN(const auto properties, machine.plugin->properties(device));
    nics.insert(properties.name);
  }
  nics_.assign(nics.begin(), nics.end());
  options_.pipeline.channels = static_cast<uint32_t>(devices.size());
  TCPX_RETURN_IF_ERROR(make_unpacker());
  TCPX_ASSIGN_OR_RETURN(auto made,
                        PipelineEnd::create(end_setup(), {machine.plugin, devices, options_.pipeline, std::move(unpacker_)}));
  pipeline_ = made.get();
  end_ = std::move(made);
  return Status::ok();
}

// Half of what is free, for all that this machine's ends need of that kind of memory.
Result<uint64_t> PerfEnd::room_per_direction() const {
  TCPX_ASSIGN_OR_RETURN(const uint64_t free_bytes, place_.on_gpu() ? free_gpu_bytes(place_.gpu) : free_host_bytes());
  const bool shared = options_.role == PerfRole::kLoopback && (!place_.on_gpu() || place_.machine.memory->device_count() == 1);
  const uint64_t directions = (place_.sends() && place_.receives() ? 2 : 1) * (shared ? 2 : 1);
  return free_bytes / 2 / directions;
}

Status PerfEnd::hear_request(BootstrapChannel& channel) {
  TCPX_ASSIGN_OR_RETURN(const auto request, channel.receive_parameters(place_.deadline()));
  TCPX_ASSIGN_OR_RETURN(const std::string overruled, take_request(request, options_));
  if (!overruled.empty()) say(concat("the client decides: ", overruled));
  return is_pipeline() ? make_pipeline() : Status::ok();
}

Status PerfEnd::agree(BootstrapChannel& channel) {
  if (options_.memory == MemoryType::kCuda && !place_.machine.memory->has_gpu()) {
    say("no GPU on this machine: host memory stands in for GPU memory");
  }
  TCPX_ASSIGN_OR_RETURN(largest_, room_per_direction());
  slot_room_ = std::min(largest_, place_.on_gpu() ? kSlotsOnGpu : kSlotsOnHost);
  // No round has more transfers than are asked for; of 17 the slots are one less.
  const uint64_t most = std::max(options_.iterations, options_.warm_up);
  if (options_.duration <= Duration::zero())
    slot_room_ = std::min(slot_room_, (most + 1) * slot_stride(options_.sizes.max_bytes));
  Parameters mine = {{"longest chunk bytes", std::to_string(longest_chunk_bytes())},
                     {"room", std::to_string(largest_)},
                     {"slot room", std::to_string(slot_room_)},
                     {"gpu", std::to_string(place_.gpu)},
                     {"verified", verified() ? "yes" : "no"},
                     {"nics", joined(nics_, ",")},
                     {"unpack", unpacker()},
                     {"about", describe()}};
  add_protocol(mine);
  const NetPlugin& plugin = *place_.machine.plugin;
  const bool bare = options_.layer == Layer::kPlugin;  // a pipeline compares these by itself
  if (bare) add_message_cut(plugin, mine);
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.exchange_parameters(mine, {}, place_.deadline()));
  TCPX_RETURN_IF_ERROR(check_protocol(theirs));
  TCPX_RETURN_IF_ERROR(compare_parameters(mine, theirs, {{kPluginPieceBytes}}));
  for (const Direction direction : {Direction::kRecv, Direction::kSend}) {
    if (bare) TCPX_RETURN_IF_ERROR(check_chunk_bytes(plugin, direction, theirs, options_.pipeline.chunk_bytes));
  }
  return take_peer(theirs);
}

Status PerfEnd::take_peer(const Parameters& theirs) {
  ParameterReader reader(theirs, kAgree);
  const auto room = reader.number<uint64_t>("room"), slot_room = reader.number<uint64_t>("slot room");
  const auto longest_chunk = reader.number<uint32_t>("longest chunk bytes");
  const std::string nics = reader.text("nics"), about = reader.text("about"), unpack_there = reader.text("unpack");
  peer_gpu_ = reader.number<int>("gpu");
  const bool verified_there = reader.text("verified") == "yes";
  TCPX_RETURN_IF_ERROR(reader.status());
  const bool less_here = largest_ <= room;
  largest_ = std::min(largest_, room);
  slot_room_ = std::min(slot_room_, slot_room);
  if (options_.sizes.max_bytes > largest_) {
    return {Code::kExhausted, "allocate memory",
            concat("a transfer of ", options_.sizes.max_bytes, " bytes; the ", less_here == is_server() ? "server" : "client",
                   " has room for ", largest_, " in each direction (half of what is free)")};
  }
  head_ = {.version = TCPX_VERSION,
           .asked = options_,
           .server = is_server() ? describe() : about,
           .client = is_server() ? about : describe(),
           .unpack = is_server() ? unpacker() : unpack_there,
           .nics = is_server() ? nics_ : split(nics, ","),
           .channels = channels(),
           .longest_chunk_bytes = std::min(longest_chunk_bytes(), longest_chunk),
           .verified = verified() && verified_there};
  return Status::ok();
}

// One direction after the other, because a connect may block until the other end accepts. First from the client to the server.
Status PerfEnd::open(BootstrapChannel& channel) {
  std::vector<Handle> theirs(1);
  if (is_pipeline()) {
    pipeline_->meet_over(channel);
    // Memory for the largest row at once: what a larger row leaves unused stays registered.
    const std::vector<uint64_t> sizes = sizes_of(options_.sizes);
    const auto memory_of = [this](uint64_t bytes) { return slots_in(slot_room_, bytes) * slot_stride(bytes); };
    TCPX_RETURN_IF_ERROR(end_->allocate(row_of(
        *std::max_element(sizes.begin(), sizes.end(), [&](uint64_t a, uint64_t b) { return memory_of(a) < memory_of(b); }))));
  } else {
    EndSetup setup = end_setup();
    setup.peer = channel.peer();
    setup.peer_gpu = peer_gpu_;
    TCPX_ASSIGN_OR_RETURN(end_, make_bench_end(setup));
    TCPX_ASSIGN_OR_RETURN(const Handle mine, end_->listen());
    TCPX_RETURN_IF_ERROR(channel.send_handles({&mine, 1}, place_.deadline()));
    TCPX_ASSIGN_OR_RETURN(theirs, channel.receive_handles(1, place_.deadline()));
  }
  const bool back = !is_pipeline() || options_.mode != Pattern::kOneWay;
  if (!is_server()) TCPX_RETURN_IF_ERROR(end_->connect(theirs.front(), place_.deadline()));
  if (is_server() || back) TCPX_RETURN_IF_ERROR(end_->accept(place_.deadline()));
  return is_server() && back ? end_->connect(theirs.front(), place_.deadline()) : Status::ok();
}

Status PerfEnd::run(BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(is_server() ? hear_request(channel)
                                   : channel.send_parameters(encode_request(options_), place_.deadline()));
  TCPX_RETURN_IF_ERROR(agree(channel));
  TCPX_RETURN_IF_ERROR(open(channel));
  output_.begin(head_);
  for (const uint64_t bytes : sizes_of(options_.sizes)) {
    TCPX_ASSIGN_OR_RETURN(const EndRow mine, measure(channel, bytes));
    TCPX_ASSIGN_OR_RETURN(const auto received, channel.exchange_parameters(encode_row(mine), {}, round_deadline(bytes)));
    TCPX_ASSIGN_OR_RETURN(const EndRow theirs, decode_row(received));
    output_.row(is_server() ? make_row(options_.mode, bytes, mine, theirs) : make_row(options_.mode, bytes, theirs, mine));
  }
  // Nobody closes before both have all they wanted (13, 36).
  TCPX_RETURN_IF_ERROR(channel.barrier(place_.deadline()));
  return end_->close();
}

Result<EndRow> PerfEnd::measure(BootstrapChannel& channel, uint64_t bytes) {
  RowUnderWay under_way;
  under_way.row.verified = verified();
  const Status status = run_rounds(channel, bytes, under_way);
  set_times(under_way.row, std::move(under_way.samples_ns));
  if (status.is_ok()) return under_way.row;
  output_.unfinished(bytes, under_way.row);
  return status;
}

Status PerfEnd::run_rounds(BootstrapChannel& channel, uint64_t bytes, RowUnderWay& row) {
  TCPX_RETURN_IF_ERROR(end_->allocate(row_of(bytes)));
  uint64_t warmed_up = 0, timed = 0;
  TimePoint timed_since = Clock::steady().now();
  for (;;) {
    NextRound next = next_round(bytes, warmed_up, timed, timed_since);
    if (is_server()) {
      TCPX_ASSIGN_OR_RETURN(next, hear_round(channel, bytes));
    } else {
      const Parameters round = {{"transfers", std::to_string(next.transfers)}, {"timed", next.timed ? "1" : "0"}};
      TCPX_RETURN_IF_ERROR(channel.send_parameters(round, place_.deadline()));
    }
    if (next.transfers == 0) return Status::ok();
    ++round_;
    TCPX_RETURN_IF_ERROR(end_->prepare(next.transfers));
    if (place_.before_timing && next.timed && timed == 0) TCPX_RETURN_IF_ERROR(place_.before_timing());
    TCPX_RETURN_IF_ERROR(channel.barrier(round_deadline(bytes)));
    RowUnderWay ignored;
    TCPX_RETURN_IF_ERROR(run_one(channel, bytes, next, next.timed ? row : ignored));
    TCPX_RETURN_IF_ERROR(compare(row));
    if (next.timed && timed == 0) timed_since = Clock::steady().now();
    (next.timed ? timed : warmed_up) += next.transfers;
  }
}

PerfEnd::NextRound PerfEnd::next_round(uint64_t bytes, uint64_t warmed_up, uint64_t timed, TimePoint timed_since) const {
  const uint32_t slots = slots_in(slot_room_, bytes);
  const auto up_to = [&](uint64_t left) { return static_cast<uint32_t>(std::min<uint64_t>(slots, left)); };
  if (warmed_up < options_.warm_up) return {up_to(options_.warm_up - warmed_up), false};
  if (options_.duration <= Duration::zero()) return {up_to(options_.iterations - timed), true};
  const bool over = timed > 0 && Clock::steady().now() - timed_since >= options_.duration;
  return {over ? 0 : slots, true};
}

Result<PerfEnd::NextRound> PerfEnd::hear_round(BootstrapChannel& channel, uint64_t bytes) {
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.receive_parameters(round_deadline(bytes)));
  ParameterReader reader(theirs, "agree on a round");
  const NextRound next{reader.number<uint32_t>("transfers", 0, slots_in(slot_room_, bytes)), reader.flag("timed")};
  return reader.status().is_ok() ? Result<NextRound>(next) : reader.status();
}

Status PerfEnd::run_one(BootstrapChannel& channel, uint64_t bytes, const NextRound& round, RowUnderWay& under_way) {
  EndRow& row = under_way.row;
  const uint64_t done_before = under_way.samples_ns.size();
  const NicBytes nics_before = end_->nic_bytes();
  const TimePoint begin = Clock::steady().now();
  const auto on_tick = [&](uint64_t done) {
    const auto elapsed = static_cast<uint64_t>((Clock::steady().now() - begin).count());
    output_.progress(bytes, round.timed, done_before + done, row.busy_ns + elapsed);
    return channel.peer_status();
  };
  RoundWait wait{.deadline = data_deadline(bytes * round.transfers)};
  if (is_pipeline()) {
    wait.stop = &place_.stop;
    wait.on_tick = on_tick;
    wait.samples_ns = &under_way.samples_ns;
  }
  const Result<Timing> moved = end_->run(wait);
  if (place_.stop && !is_pipeline()) return {Code::kCancelled, "transfer", "interrupted"};
  if (!moved.is_ok()) return peers_reason(channel, moved.status());
  const auto taken = static_cast<uint64_t>(moved->end_ns - moved->begin_ns);
  row.busy_ns += taken;
  row.cpu_ns += static_cast<uint64_t>(moved->cpu_seconds * 1e9);
  for (const auto& [nic, now] : end_->nic_bytes()) {
    const auto before = nics_before.find(nic);
    row.nics[nic] += now - (before == nics_before.end() ? 0 : before->second);
  }
  const bool latency = options_.mode == Pattern::kPingPong;
  if (!is_pipeline() && (!latency || !is_server())) {
    // The end knows the round as a whole only.
    under_way.samples_ns.insert(under_way.samples_ns.end(), round.transfers, taken / round.transfers / (latency ? 2 : 1));
  }
  output_.progress(bytes, round.timed, under_way.samples_ns.size(), row.busy_ns);
  return is_pipeline() ? Status::ok() : channel.peer_status();
}

Status PerfEnd::compare(RowUnderWay& under_way) {
  if (!verified()) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const ComparedBytes compared, end_->compare());
  EndRow& row = under_way.row;
  if (row.wrong == 0 && compared.wrong_bytes > 0) {
    row.first_wrong =
        concat("at the ", is_server() ? "server, " : "client, ", compared.first.operation(), ": ", compared.first.detail());
  }
  row.wrong += compared.wrong_bytes;
  return Status::ok();
}

}  // namespace tcpx::perf
