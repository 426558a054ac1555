// Makes the frames that begin an operation (wire/messages.h) from the operation, and computes their cost in a window, which both ends
// must count alike.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "endpoint/operation.h"
#include "wire/control_stream.h"
#include "wire/credit_windows.h"
#include "wire/messages.h"

namespace tcpx {

/// Sends the frame that offers a long send or write, or asks for a read. Not for a receive.
/// @param offers of a send or write; may be empty
/// @param begun as OperationFrame::begun
void announce(ControlStream& stream, const Operation& operation, Packing packing, const WireOffers& offers, bool begun);
/// Sends a short send or write together with its data.
void send_with_data(ControlStream& stream, const Operation& operation, std::span<const std::byte> data);

/// Bytes of the name and the text.
/// The notification that goes with a send or write; one of several rounds goes with the last round. Not a read's, which stays here until
/// its bytes have come.
std::optional<NotifyText> notify_of(const Operation& operation);
inline size_t size_of(const std::optional<NotifyText>& notify) {
  return notify ? notify->name.size() + notify->text.size() : 0;
}
/// Cost of the frame of `announce` (with a window for offers) or of `send_with_data`.
/// @param peer_inline_bytes longest read that the peer answers with its data, which it holds meanwhile
/// @param offer_bytes of the offers in the frame
Charge charge_of(const Operation& operation, Window window, Packing packing, uint32_t peer_inline_bytes, size_t offer_bytes);
/// Cost of a frame of the peer. @param answer_bytes data of a short read, which this end holds until it has answered
template <FrameType type>
Charge charge_of(const OperationFrame<type>& frame, uint64_t answer_bytes = 0) {
  constexpr Window kWindow = type == FrameType::kSend        ? Window::kSendOffers
                             : type == FrameType::kSendData  ? Window::kSends
                             : type == FrameType::kWriteData ? Window::kRest
                                                             : Window::kRestOffers;
  return {kWindow, window_cost(kWindow, frame.data.size() + answer_bytes, frame.lengths.size(), frame.ranges.size(),
                               size_of(frame.notify), frame.offers.raw().size())};
}
Charge charge_of(const NotifyText& notify);

std::vector<uint64_t> lengths_of(const std::vector<HeldRange>& ranges);
/// The notification of a frame that came on `conn`; null: there is none.
std::unique_ptr<NotifyMsg> message_of(const std::optional<NotifyText>& notify, ConnId conn);

}  // namespace tcpx
