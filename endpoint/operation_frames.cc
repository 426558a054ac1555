#include "endpoint/operation_frames.h"

#include "base/text.h"

namespace tcpx {
namespace {

size_t size_of(const std::optional<NotifyText>& notify) {
  return notify ? notify->name.size() + notify->text.size() : 0;
}

std::optional<NotifyText> notify_of(const Operation& operation) {
  if (operation.notify == nullptr) return std::nullopt;
  return NotifyText{operation.notify->name, operation.notify->msg};
}

}  // namespace

void announce(ControlStream& stream, const Operation& operation, Packing packing) {
  const auto number = static_cast<uint64_t>(operation.id);
  if (operation.kind == OperationKind::kRead)
    return stream.send(ReadFrame{.operation = number, .bytes = operation.bytes, .ranges = operation.remote});
  if (operation.kind == OperationKind::kWrite)
    return stream.send(WriteFrame{.operation = number,
                                  .bytes = operation.bytes,
                                  .packing = packing,
                                  .ranges = operation.remote,
                                  .notify = notify_of(operation)});
  std::vector<uint64_t> lengths;
  if (packing == Packing::kRanges) lengths = lengths_of(operation.ranges);
  stream.send(SendFrame{.operation = number,
                        .sequence = operation.sequence,
                        .bytes = operation.bytes,
                        .packing = packing,
                        .lengths = lengths,
                        .notify = notify_of(operation)});
}

void send_with_data(ControlStream& stream, const Operation& operation, std::span<const std::byte> data) {
  const auto number = static_cast<uint64_t>(operation.id);
  if (operation.kind == OperationKind::kWrite)
    return stream.send(
        WriteDataFrame{.operation = number, .ranges = operation.remote, .notify = notify_of(operation), .data = data});
  stream.send(SendDataFrame{.operation = number, .sequence = operation.sequence, .notify = notify_of(operation), .data = data});
}

Charge charge_of(const Operation& operation, Window window, Packing packing, uint32_t peer_inline_bytes) {
  const bool reads = operation.kind == OperationKind::kRead;
  const bool in_frame = reads ? operation.bytes <= peer_inline_bytes : !is_for_offers(window);
  const bool by_range = window == Window::kSendOffers && packing == Packing::kRanges;
  return {window, window_cost(window, in_frame ? operation.bytes : 0, by_range ? operation.ranges.size() : 0,
                              operation.remote.size(), size_of(notify_of(operation)))};
}

Charge charge_of(const SendFrame& frame) {
  return {Window::kSendOffers, window_cost(Window::kSendOffers, 0, frame.lengths.size(), 0, size_of(frame.notify))};
}

Charge charge_of(const SendDataFrame& frame) {
  return {Window::kSends, window_cost(Window::kSends, frame.data.size(), 0, 0, size_of(frame.notify))};
}

Charge charge_of(const WriteFrame& frame) {
  return {Window::kRestOffers, window_cost(Window::kRestOffers, 0, 0, frame.ranges.size(), size_of(frame.notify))};
}

Charge charge_of(const WriteDataFrame& frame) {
  return {Window::kRest, window_cost(Window::kRest, frame.data.size(), 0, frame.ranges.size(), size_of(frame.notify))};
}

Charge charge_of(const ReadFrame& frame, uint32_t inline_bytes) {
  const uint64_t answer_bytes = frame.bytes <= inline_bytes ? frame.bytes : 0;
  return {Window::kRestOffers, window_cost(Window::kRestOffers, answer_bytes, 0, frame.ranges.size(), 0)};
}

Charge charge_of(const NotifyText& notify) {
  return {Window::kRest, window_cost(notify.name.size() + notify.text.size())};
}

std::vector<uint64_t> lengths_of(const std::vector<HeldRange>& ranges) {
  std::vector<uint64_t> lengths;
  for (const HeldRange& range : ranges) lengths.push_back(range.bytes);
  return lengths;
}

std::unique_ptr<NotifyMsg> message_of(const std::optional<NotifyText>& notify, ConnId conn) {
  if (!notify) return nullptr;
  return std::make_unique<NotifyMsg>(NotifyMsg{std::string(notify->name), std::string(notify->text), conn});
}

Status unexpected(ControlType type, uint64_t operation, std::string_view why) {
  return Status(Code::kProtocol, concat("read \"", name_of(type), '"'), concat("operation ", operation, ": ", why));
}

}  // namespace tcpx
