#include "endpoint/operation_frames.h"

namespace tcpx {
namespace {

template <FrameType type>
void say(ControlStream& stream, const Operation& operation, Packing packing, const WireOffers& offers, bool begun,
         std::span<const std::byte> data = {}) {
  std::vector<uint64_t> lengths;
  if (type == FrameType::kSend && packing == Packing::kRanges) lengths = lengths_of(operation.ranges);
  stream.send(OperationFrame<type>{.operation = static_cast<uint64_t>(operation.id),
                                   .sequence = operation.sequence,
                                   .bytes = operation.bytes,
                                   .packing = packing,
                                   .begun = begun,
                                   .lengths = lengths,
                                   .ranges = operation.remote,
                                   .offers = offers,
                                   .notify = notify_of(operation),
                                   .data = data});
}

}  // namespace

std::optional<NotifyText> notify_of(const Operation& operation) {
  if (operation.notify == nullptr || operation.kind == OperationKind::kRead || !operation.is_last_round()) return std::nullopt;
  return NotifyText{operation.notify->name, operation.notify->msg};
}

void announce(ControlStream& stream, const Operation& operation, Packing packing, const WireOffers& offers, bool begun) {
  if (operation.kind == OperationKind::kRead) return say<FrameType::kRead>(stream, operation, packing, {}, false);
  if (operation.kind == OperationKind::kWrite) return say<FrameType::kWrite>(stream, operation, packing, offers, begun);
  say<FrameType::kSend>(stream, operation, packing, offers, begun);
}

void send_with_data(ControlStream& stream, const Operation& operation, std::span<const std::byte> data) {
  if (operation.kind == OperationKind::kWrite)
    return say<FrameType::kWriteData>(stream, operation, Packing::kWhole, {}, false, data);
  say<FrameType::kSendData>(stream, operation, Packing::kWhole, {}, false, data);
}

Charge charge_of(const Operation& operation, Window window, Packing packing, uint32_t peer_inline_bytes, size_t offer_bytes) {
  const bool reads = operation.kind == OperationKind::kRead;
  const bool in_frame = reads ? operation.bytes <= peer_inline_bytes : !is_for_offers(window);
  const bool by_range = window == Window::kSendOffers && packing == Packing::kRanges;
  return {window, window_cost(window, in_frame ? operation.bytes : 0, by_range ? operation.ranges.size() : 0,
                              operation.remote.size(), size_of(notify_of(operation)), offer_bytes)};
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

}  // namespace tcpx
