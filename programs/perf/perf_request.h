// Request: what a client says about the measurement before anything else, so that the server needs no parameters of its own. Pure.
#pragma once

#include <string>

#include "programs/perf/perf.h"
#include "wire/set_up_messages.h"

namespace tcpx::perf {

/// What both ends must do alike. Each field but the protocol has the name of its option, without dashes.
Parameters encode_request(const Measurement& asked);

/// Puts what the client asks for in the place of what `options` has. An error changes nothing.
/// @return those of PerfOptions::given that were something else here, for people, with both values; "" for none. kProtocol naming
/// what is missing, malformed or beyond what a client may ask for; kMismatch as check_protocol.
Result<std::string> take_request(const Parameters& request, PerfOptions& options);

/// @return "" or what cannot be measured, beginning with the option to change. Each value alone is in its range.
std::string contradiction(const Measurement& asked);

/// The field by which ends of other versions are told apart. It is in the first parameters that each end sends.
void add_protocol(Parameters& mine);
/// @return kMismatch when the peer speaks another protocol, or none
Status check_protocol(const Parameters& theirs);

}  // namespace tcpx::perf
