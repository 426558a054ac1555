// The frames that begin an operation: their contents, and their cost in a window, as both ends count it.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "wire/control_stream.h"
#include "wire/credit_windows.h"
#include "endpoint/operation.h"
#include "wire/messages.h"

namespace tcpx {

/// Says what travels in front of a transfer through the pipeline, or asks for one. Not for a receive.
/// @param sources of a send or write; may be none
/// @param begun OperationFrame::begun
void announce(ControlStream& stream, const Operation& operation, Packing packing, const WireArray<WireSource>& sources, bool begun);
/// Says a short send or write, with its data.
void send_with_data(ControlStream& stream, const Operation& operation, std::span<const std::byte> data);

/// Bytes of its texts.
inline size_t size_of(const std::optional<NotifyText>& notify) {
  return notify ? notify->name.size() + notify->text.size() : 0;
}
/// @param window for announcements: of `announce`; else of `send_with_data`
/// @param peer_inline_bytes longest read that the peer answers with its data, which it holds then
/// @param sources how many are said
Charge charge_of(const Operation& operation, Window window, Packing packing, uint32_t peer_inline_bytes, size_t sources);
/// @param answer_bytes of data with which this end answers a read at once, and which it holds until then
template <ControlType type>
Charge charge_of(const OperationFrame<type>& frame, uint64_t answer_bytes = 0) {
  constexpr Window kWindow = type == ControlType::kSend        ? Window::kSendOffers
                             : type == ControlType::kSendData  ? Window::kSends
                             : type == ControlType::kWriteData ? Window::kRest
                                                               : Window::kRestOffers;
  return {kWindow, window_cost(kWindow, frame.data.size() + answer_bytes, frame.lengths.size(), frame.ranges.size(),
                               size_of(frame.notify), frame.sources.size())};
}
Charge charge_of(const NotifyText& notify);

std::vector<uint64_t> lengths_of(const std::vector<HeldRange>& ranges);
/// A notification that came on that connection; null when there is none.
std::unique_ptr<NotifyMsg> message_of(const std::optional<NotifyText>& notify, ConnId conn);

}  // namespace tcpx
