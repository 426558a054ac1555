#include "secure/tls_mismatch.h"

#include "base/environment.h"
#include "base/text.h"
#include "secure/openssl.h"

namespace tcpx {
namespace {

// @param refused a code of X509_verify_cert
std::string cause_of(long refused, const OpenSsl& library) {
  const char* const text = library.X509_verify_cert_error_string(refused);
  switch (refused) {
    case X509_V_ERR_APPLICATION_VERIFICATION:
      return concat("not one of ", environment_info(Variable::kTlsPeers).name);
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:  // by a CA of the same name
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
      return concat("its CA is not in ", environment_info(Variable::kTlsCa).name, " (", text, ")");
    default:
      return text;
  }
}

const char* peer_of(const TlsFailure& failure) {
  return failure.is_server ? "client" : "server";
}

// @param as_it_seems for a conclusion that other causes could explain, too
std::string differ(const TlsFailure& failure, const char* as_it_seems) {
  const std::string secret = concat("a secret (", name_of_variables(Credential::kSecret), ")");
  const std::string certificate = concat("a certificate (", name_of_variables(Credential::kCertificate), ")");
  const bool own_secret = failure.own == Credential::kSecret;
  return concat("this end has ", own_secret ? secret : certificate, " and the ", peer_of(failure), as_it_seems, " ",
                own_secret ? certificate : secret, ": give both the same");
}

std::string with_secret(const TlsFailure& failure) {
  if (failure.established) return "";
  switch (failure.reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:         // the client's proof is of another secret,
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:  // and this is how OpenSSL tells the client
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:      // the same, of other libraries
      return concat("the secrets differ: give both ends the same ", name_of_variables(Credential::kSecret));
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return differ(failure, "");
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:  // this server would have to sign
      return failure.secret_offered ? "" : differ(failure, ", as it seems,");
    default:
      return "";
  }
}

// A server tells its opinion of the client's certificate when the client has finished its handshake, so this may come later, too.
std::string with_certificate(const TlsFailure& failure, const OpenSsl& library) {
  if (failure.refused != X509_V_OK)
    return concat("the certificate of the ", peer_of(failure), ", ", failure.peer_name,
                  ", is refused: ", cause_of(failure.refused, library));
  const auto told = [&](const std::string& why) {
    return concat("the ", peer_of(failure), " refuses the certificate of this end: ", why);
  };
  if (failure.is_server && failure.secret_offered) return differ(failure, "");
  switch (failure.reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return concat("the client has no certificate: give it one (", name_of_variables(Credential::kCertificate), ")");
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:  // its CA has the same name as one of the peer's, and another key
      return told(concat("its CA is not in the peer's ", environment_info(Variable::kTlsCa).name));
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return told("it has expired");
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
      return told("it is not valid, or not yet");
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
      return told("it is not good for both servers and clients");
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      if (!failure.is_server && failure.peer_name.empty()) return differ(failure, ", as it seems,");
      return told(concat("its name is not one of the peer's ", environment_info(Variable::kTlsPeers).name));
    default:
      return "";
  }
}

}  // namespace

std::string describe_mismatch(const TlsFailure& failure, const OpenSsl& library) {
  return failure.own == Credential::kSecret ? with_secret(failure) : with_certificate(failure, library);
}

}  // namespace tcpx
