// Certificates of an end: the PEM files that hold its own, and the names by which it knows others.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tcpx/status.h"

struct ssl_ctx_st;
struct x509_st;

namespace tcpx {

struct OpenSsl;

/// Paths of PEM files: UCCL_TCPX_TLS_CERT (with intermediate ones behind it), UCCL_TCPX_TLS_KEY, UCCL_TCPX_TLS_CA.
struct CertificateFiles {
  std::string certificate, key, ca;
};

/// The names that a peer's certificate may have.
class PeerNames {
 public:
  /// @param text names and patterns with commas between them, as in UCCL_TCPX_TLS_PEERS: `host.svc`, or `*.svc` for any one label in
  /// front; empty: all names. @return kBadConfig
  static Result<PeerNames> parse(const std::string& text);
  /// @return null: none of these; else the one for which the certificate is taken
  const std::string* find(const std::vector<std::string>& names) const;
  /// True when a certificate without a name will do, too.
  bool any() const { return patterns_.empty(); }

 private:
  std::vector<std::string> patterns_;
};

/// The DNS names of a certificate, else its common name; none when it has neither. Names that are not printable are left out.
std::vector<std::string> names_of(const OpenSsl& library, const x509_st* certificate);

/// Has the context use the files. @return kNotFound and kSystem with the errno; kBadConfig naming the variable, the file and why
Status load_certificate(const OpenSsl& library, ssl_ctx_st* context, const CertificateFiles& files);

/// For people.
struct CertificateFacts {
  std::vector<std::string> names;
  std::chrono::system_clock::time_point begins, ends;
  std::string distrusted;  ///< why the CA does not vouch for it, apart from dates; "": it does
};
/// @return errors of load_certificate; kUnsupported: there is no OpenSSL
Result<CertificateFacts> certificate_facts(const CertificateFiles& files);

}  // namespace tcpx
