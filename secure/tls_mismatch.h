// Why two ends of this library do not meet over TLS, in sentences that say what to change. Neither end knows what the other has: each
// concludes it from what TLS shows.
#pragma once

#include <string>

#include "secure/settings.h"

namespace tcpx {

struct OpenSsl;

/// Knowledge of one end when a session has failed.
struct TlsFailure {
  Credential own;  ///< of this end
  bool is_server;
  bool established;
  bool secret_offered;           ///< by the client; known at the server
  const std::string& peer_name;  ///< as its certificate names it; empty: none has come
  long refused;                  ///< X509_V_OK, or why this end does not take the peer's certificate
  int reason;                    ///< of libssl; 0: none of libssl's
};

/// @return "": the two ends do not differ, and the cause is another
std::string describe_mismatch(const TlsFailure& failure, const OpenSsl& library);

}  // namespace tcpx
