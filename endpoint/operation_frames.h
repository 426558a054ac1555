// The frames that begin an operation: their contents, and their cost in a window, as both ends count it.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "endpoint/control_stream.h"
#include "endpoint/credit_windows.h"
#include "endpoint/operation.h"
#include "endpoint/wire.h"

namespace tcpx {

/// Says what travels in front of a transfer through the pipeline, or asks for one. Not for a receive.
void announce(ControlStream& stream, const Operation& operation, Packing packing);
/// Says a short send or write, with its data.
void send_with_data(ControlStream& stream, const Operation& operation, std::span<const std::byte> data);

/// @param window for announcements: of `announce`; else of `send_with_data`
/// @param peer_inline_bytes longest read that the peer answers with its data, which it holds then
Charge charge_of(const Operation& operation, Window window, Packing packing, uint32_t peer_inline_bytes);
Charge charge_of(const SendFrame& frame);
Charge charge_of(const SendDataFrame& frame);
Charge charge_of(const WriteFrame& frame);
Charge charge_of(const WriteDataFrame& frame);
/// @param inline_bytes longest read that this end answers with its data
Charge charge_of(const ReadFrame& frame, uint32_t inline_bytes);
Charge charge_of(const NotifyText& notify);

/// Bytes of each range.
std::vector<uint64_t> lengths_of(const std::vector<HeldRange>& ranges);
/// A notification that came on that connection; null when there is none.
std::unique_ptr<NotifyMsg> message_of(const std::optional<NotifyText>& notify, ConnId conn);

inline constexpr std::string_view kNoWholeVector = "a vector cannot travel as a whole";
/// Error of a frame that no peer of ours would say now.
Status unexpected(ControlType type, uint64_t operation, std::string_view why);
template <class Frame>
Status unexpected(const Frame& frame, std::string_view why) {
  return unexpected(Frame::kType, frame.operation, why);
}

}  // namespace tcpx
