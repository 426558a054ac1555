#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "net/vendor_traps.h"
#include "programs/doctor/services.h"

namespace tcpx::doctor {
namespace {

// Protocol Buffers, "Encoding": wire types.
constexpr uint32_t kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
constexpr uint32_t kQueueIdQuery = 3, kQueueIdResponse = 4, kFirstField = 1;

/// A field with its length in front; all of ours are shorter than 128 bytes, so the length takes one.
std::string field(uint32_t number, std::string_view content) {
  return concat(static_cast<char>(number << 3 | kLengthDelimited), static_cast<char>(content.size()), content);
}

std::optional<uint64_t> take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct Field {
  uint64_t number = 0;
  std::string_view content;  ///< of a varint its own bytes
  bool is_bytes = false;
};
/// Takes the first field off `rest`, never beyond its end. nullopt: it is malformed.
std::optional<Field> take_field(std::string_view& rest) {
  const auto tag = take_varint(rest);
  if (!tag) return std::nullopt;
  const std::string_view begin = rest;
  const uint32_t type = *tag & 7;
  std::optional<uint64_t> length;
  if (type == kVarint && take_varint(rest)) return Field{*tag >> 3, begin.substr(0, begin.size() - rest.size()), false};
  if (type == kFixed64) length = 8;
  if (type == kFixed32) length = 4;
  if (type == kLengthDelimited) length = take_varint(rest);
  if (!length || *length > rest.size()) return std::nullopt;
  const Field field{*tag >> 3, rest.substr(0, *length), true};
  rest.remove_prefix(*length);
  return field;
}

constexpr std::array<const char*, 2> kSockets = {"rx_rule_manager", "rx_rule_uninstall"};
constexpr char kPoolSocketPrefix[] = "get_gpu_fd_";
constexpr std::array<const char*, 2> kGpuSockets = {kPoolSocketPrefix, "get_gpu_metadata_"};

bool has_sockets(const FileTree& files, const std::string& directory) {
  const auto is_rxdms = [](const auto& name) { return name == kSockets.front() || name.starts_with(kPoolSocketPrefix); };
  return std::ranges::any_of(files.list(directory), is_rxdms);
}

ServiceAnswer ended(ServiceAnswer::End end, std::string detail = {}) {
  return {.end = end, .message = {}, .detail = std::move(detail)};
}

ServiceAnswer refused_by(int error) {
  if (error == ENOENT || error == ENOTDIR) return ended(ServiceAnswer::End::kAbsent);
  if (error == EACCES || error == EPERM) return ended(ServiceAnswer::End::kDenied);
  if (error == ECONNREFUSED) return ended(ServiceAnswer::End::kRefused);
  if (error == EAGAIN) return ended(ServiceAnswer::End::kSilent);  // its queue of connections is full (unix(7))
  return ended(ServiceAnswer::End::kFailed, std::strerror(error));
}

}  // namespace

std::string queue_query(std::string_view gpu_pci_address) {
  const std::string body = field(kQueueIdQuery, field(kFirstField, gpu_pci_address.substr(0, 100)));
  return std::string{'\0', static_cast<char>(body.size())} + body;
}

std::optional<std::vector<int>> queue_ids_in(std::string_view message) {
  std::optional<std::vector<int>> ids;
  while (!message.empty()) {
    const auto outer = take_field(message);
    if (!outer) return std::nullopt;
    if (outer->number != kQueueIdResponse || !outer->is_bytes) continue;
    if (!ids) ids.emplace();
    for (std::string_view response = outer->content; !response.empty();) {
      const auto inner = take_field(response);
      if (!inner) return std::nullopt;
      if (inner->number != kFirstField) continue;
      for (std::string_view numbers = inner->content; !numbers.empty();) {  // several when the writer has packed them
        const auto id = take_varint(numbers);
        if (!id) return std::nullopt;
        ids->push_back(static_cast<int>(*id));
      }
    }
  }
  return ids;
}

ServiceAnswer talk(const std::string& path, std::string_view request, Duration limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ended(ServiceAnswer::End::kFailed, "the path is too long for a unix socket");
  path.copy(address.sun_path, path.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return ended(ServiceAnswer::End::kFailed, std::strerror(errno));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return refused_by(errno);
  if (request.empty()) return ended(ServiceAnswer::End::kConnected);

  const Deadline deadline = Deadline::after(limit);
  ServiceAnswer answer = ended(ServiceAnswer::End::kAnswered);
  std::array<unsigned char, 2> length{};
  Status status = send_all(socket.get(), std::as_bytes(std::span(request)), deadline);
  if (status.is_ok()) status = recv_all(socket.get(), std::as_writable_bytes(std::span(length)), deadline);
  answer.message.resize(size_t{length[0]} << 8 | length[1]);
  if (status.is_ok()) status = recv_all(socket.get(), std::as_writable_bytes(std::span(answer.message)), deadline);
  if (status.is_ok()) return answer;
  if (status.code() == Code::kPeerGone) return ended(ServiceAnswer::End::kClosed);
  if (status.code() == Code::kTimeout) return ended(ServiceAnswer::End::kSilent);
  return ended(ServiceAnswer::End::kFailed, status.detail());
}

ServiceFacts service_facts(const Machine& machine) {
  const FileTree& files = machine.files;
  const std::string usual(kRxdmDirectory);
  ServiceFacts facts{.expected = expected_path(machine), .named = machine.variables.get(Variable::kUnixClientPrefix)};
  facts.wanted = facts.named.value_or(usual);
  while (facts.wanted.size() > 1 && facts.wanted.ends_with('/')) facts.wanted.pop_back();
  facts.directory = facts.wanted;
  if (!find_rxdm_directory_trap(facts.wanted) && !has_sockets(files, facts.wanted)) {
    facts.elsewhere = has_sockets(files, usual) ? usual : has_sockets(files, kVendorDefault) ? kVendorDefault : "";
    if (!facts.elsewhere.empty()) facts.directory = facts.elsewhere;
  }
  facts.has_directory = files.exists(facts.directory);
  facts.has_registry = files.exists(concat(facts.directory, "/", kRegistrySocket));
  for (const PciDevice& gpu : pci_gpus(files)) facts.gpus.push_back(gpu.name);
  const bool bus_tells = !facts.gpus.empty();
  for (const std::string& name : files.list(facts.directory))
    if (!bus_tells && name.starts_with(kPoolSocketPrefix)) facts.gpus.push_back(name.substr(sizeof kPoolSocketPrefix - 1));
  for (const char* name : kSockets) facts.sockets.emplace_back(name, ServiceAnswer{});
  for (const std::string& gpu : facts.gpus)
    for (const char* prefix : kGpuSockets) facts.sockets.emplace_back(concat(prefix, gpu), ServiceAnswer{});
  return facts;
}

void ask_services(ServiceFacts& facts) {
  if (!facts.expected.vendor_path || !facts.has_directory) return;
  bool alive = false;
  for (auto& [name, answer] : facts.sockets) {
    answer = talk(concat(facts.directory, "/", name), "");
    alive = alive || answer.end == ServiceAnswer::End::kConnected;
  }
  for (const std::string& gpu : facts.gpus) {
    if (!alive) return;
    facts.queues.push_back(talk(concat(facts.directory, "/", kQueueSocket), queue_query(gpu)));
    alive = facts.queues.back().end == ServiceAnswer::End::kAnswered;
  }
}

}  // namespace tcpx::doctor
