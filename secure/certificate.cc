#include "secure/certificate.h"

#include <fcntl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/environment.h"
#include "base/text.h"
#include "base/words.h"
#include "secure/openssl.h"
#include "secure/secret.h"

namespace tcpx {
namespace {

constexpr size_t kMaxNameBytes = 255;

bool is_printable(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isgraph(c) != 0; });
}

bool is_same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool matches(std::string_view pattern, std::string_view name) {
  if (!pattern.starts_with("*.")) return is_same(pattern, name);
  const size_t dot = name.find('.');
  return dot != 0 && dot != name.npos && is_same(pattern.substr(1), name.substr(dot));
}

// Whoever wrote this meant a name, or `*.` and a name.
bool is_pattern(std::string_view text) {
  if (text.starts_with("*.")) text.remove_prefix(2);
  return is_printable(text) && text.front() != '.' && text.find_first_of("*/:@") == text.npos;
}

Status refuse(Variable variable, const std::string& path, const std::string& why) {
  return Status(Code::kBadConfig, "read certificate", concat(environment_info(variable).name, "=", path, ": ", why));
}

Status refuse_for(const OpenSsl& library, Variable variable, const std::string& path, const char* otherwise) {
  const char* const reason = library.ERR_reason_error_string(library.ERR_peek_error());
  return refuse(variable, path, concat(otherwise, reason != nullptr ? concat(" (", reason, ")") : ""));
}

// OpenSSL would ask at the terminal.
int no_password(char*, int, int, void*) {
  return 0;
}

std::chrono::system_clock::time_point point_of(const OpenSsl& library, const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || library.ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

}  // namespace

Result<PeerNames> PeerNames::parse(const std::string& text) {
  PeerNames made;
  if (text.empty()) return made;
  for (size_t begin = 0, end = 0; end != text.npos; begin = end + 1) {
    end = text.find(',', begin);
    made.patterns_.push_back(text.substr(begin, end == text.npos ? end : end - begin));
    if (!is_pattern(made.patterns_.back()))
      return refuse(Variable::kTlsPeers, text, concat("\"", made.patterns_.back(), "\" is neither a name nor *. and a name"));
  }
  return made;
}

const std::string* PeerNames::find(const std::vector<std::string>& names) const {
  const auto found = std::find_if(names.begin(), names.end(), [this](const std::string& name) {
    return any() || std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& pattern) { return matches(pattern, name); });
  });
  return found == names.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const OpenSsl& library, const x509_st* certificate) {
  std::vector<std::string> names;
  bool has_dns = false;
  auto* const all = static_cast<GENERAL_NAMES*>(library.X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  const auto* const stack = reinterpret_cast<const OPENSSL_STACK*>(all);
  for (int i = 0; all != nullptr && i < library.OPENSSL_sk_num(stack); ++i) {
    int type = 0;
    const void* const value =
        library.GENERAL_NAME_get0_value(static_cast<const GENERAL_NAME*>(library.OPENSSL_sk_value(stack, i)), &type);
    if (type != GEN_DNS) continue;
    has_dns = true;
    const auto* const text = static_cast<const ASN1_STRING*>(value);
    const std::string_view name(reinterpret_cast<const char*>(library.ASN1_STRING_get0_data(text)),
                                static_cast<size_t>(library.ASN1_STRING_length(text)));
    if (is_printable(name)) names.emplace_back(name);
  }
  library.GENERAL_NAMES_free(all);
  if (has_dns) return names;
  char common[kMaxNameBytes + 1] = {};
  const int size =
      library.X509_NAME_get_text_by_NID(library.X509_get_subject_name(certificate), NID_commonName, common, sizeof common);
  if (size > 0 && is_printable({common, static_cast<size_t>(size)})) names.emplace_back(common, static_cast<size_t>(size));
  return names;
}

Status load_certificate(const OpenSsl& library, ssl_ctx_st* context, const CertificateFiles& files) {
  const auto readable = [](Variable variable, const std::string& path) -> Status {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    return fd ? Status::ok() : cannot_open(variable, path);
  };
  TCPX_RETURN_IF_ERROR(readable(Variable::kTlsCert, files.certificate));
  TCPX_RETURN_IF_ERROR(open_private(Variable::kTlsKey, files.key).status());
  TCPX_RETURN_IF_ERROR(readable(Variable::kTlsCa, files.ca));
  library.ERR_clear_error();
  library.SSL_CTX_set_default_passwd_cb(context, no_password);
  if (library.SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    return refuse_for(library, Variable::kTlsCert, files.certificate, "no certificate in PEM");
  if (library.SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return refuse_for(library, Variable::kTlsKey, files.key,
                      concat("no key of the certificate in PEM without a password, ", files.certificate).c_str());
  if (library.SSL_CTX_check_private_key(context) != 1)
    return refuse_for(library, Variable::kTlsKey, files.key, concat("not the key of ", files.certificate).c_str());
  if (library.SSL_CTX_load_verify_locations(context, files.ca.c_str(), nullptr) != 1)
    return refuse_for(library, Variable::kTlsCa, files.ca, "no certificate in PEM");
  // Once, and without the CA, which the peer has: OpenSSL would look for the chain in each handshake, and send the CA, too.
  STACK_OF(X509)* chain = nullptr;
  library.SSL_CTX_ctrl(context, SSL_CTRL_GET_CHAIN_CERTS, 0, &chain);
  constexpr long kChain = SSL_BUILD_CHAIN_FLAG_NO_ROOT | SSL_BUILD_CHAIN_FLAG_IGNORE_ERROR | SSL_BUILD_CHAIN_FLAG_CLEAR_ERROR;
  if (chain == nullptr) library.SSL_CTX_ctrl(context, SSL_CTRL_BUILD_CERT_CHAIN, kChain, nullptr);
  return Status::ok();
}

Result<CertificateFacts> certificate_facts(const CertificateFiles& files) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  const auto free_context = [library](SSL_CTX* context) { library->SSL_CTX_free(context); };
  const std::unique_ptr<SSL_CTX, decltype(free_context)> context(library->SSL_CTX_new(library->TLS_method()), free_context);
  const auto free_check = [library](X509_STORE_CTX* check) { library->X509_STORE_CTX_free(check); };
  const std::unique_ptr<X509_STORE_CTX, decltype(free_check)> check(library->X509_STORE_CTX_new(), free_check);
  if (context == nullptr || check == nullptr) return Status(Code::kExhausted, "read certificate", "OpenSSL makes no context");
  TCPX_RETURN_IF_ERROR(load_certificate(*library, context.get(), files));
  X509* const certificate = library->SSL_CTX_get0_certificate(context.get());
  CertificateFacts facts{.names = names_of(*library, certificate),
                         .begins = point_of(*library, library->X509_get0_notBefore(certificate)),
                         .ends = point_of(*library, library->X509_get0_notAfter(certificate))};
  STACK_OF(X509)* chain = nullptr;
  library->SSL_CTX_ctrl(context.get(), SSL_CTRL_GET_CHAIN_CERTS, 0, &chain);
  if (library->X509_STORE_CTX_init(check.get(), library->SSL_CTX_get_cert_store(context.get()), certificate, chain) != 1)
    return Status(Code::kExhausted, "read certificate", "OpenSSL makes no context");
  library->X509_STORE_CTX_set_flags(check.get(), X509_V_FLAG_NO_CHECK_TIME);
  if (library->X509_verify_cert(check.get()) != 1)
    facts.distrusted = library->X509_verify_cert_error_string(library->X509_STORE_CTX_get_error(check.get()));
  return facts;
}

}  // namespace tcpx
