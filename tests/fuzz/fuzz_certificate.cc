// Any certificate of a peer whom nobody has verified yet: the names that are taken from it for logs and rules are printable and short, and a
// certificate whose DNS names cannot be used does not get past the rules by its common name.
//
// Input: u8 flags (1: a certificate in DER follows; else u8 length and the bytes of a common name, and the rest is the extension of DNS names,
// in DER; 2: the rest is one DNS name). What OpenSSL does not read as a certificate is none.
#include <openssl/x509v3.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "secure/certificate.h"
#include "secure/openssl.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace tcpx;  // NOLINT: a program, not a header
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

const unsigned char* chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void add_names(X509* certificate, std::span<const std::byte> der) {
  const std::unique_ptr<ASN1_OCTET_STRING, void (*)(ASN1_OCTET_STRING*)> text(::ASN1_OCTET_STRING_new(),
                                                                              ::ASN1_OCTET_STRING_free);
  FUZZ_REQUIRE(::ASN1_OCTET_STRING_set(text.get(), chars(der), static_cast<int>(der.size())) == 1);
  X509_EXTENSION* const extension = ::X509_EXTENSION_create_by_NID(nullptr, NID_subject_alt_name, 0, text.get());
  FUZZ_REQUIRE(extension != nullptr && ::X509_add_ext(certificate, extension, -1) == 1);
  ::X509_EXTENSION_free(extension);
}

void add_name(X509* certificate, std::span<const std::byte> text) {
  GENERAL_NAMES* const names = sk_GENERAL_NAME_new_null();
  GENERAL_NAME* const name = ::GENERAL_NAME_new();
  ASN1_IA5STRING* const value = ::ASN1_IA5STRING_new();
  FUZZ_REQUIRE(::ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) == 1);
  ::GENERAL_NAME_set0_value(name, GEN_DNS, value);
  sk_GENERAL_NAME_push(names, name);
  FUZZ_REQUIRE(::X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, 0) == 1);
  ::GENERAL_NAMES_free(names);
}

Certificate certificate_of(fuzz::FuzzInput& input) {
  const auto flags = input.take<uint8_t>();
  if ((flags & 1) != 0) {
    const unsigned char* at = chars(input.rest());
    return {::d2i_X509(nullptr, &at, static_cast<long>(input.rest().size())), ::X509_free};
  }
  Certificate made(::X509_new(), ::X509_free);
  const auto common = input.take_bytes(input.take<uint8_t>());
  if (!common.empty())
    (void)::X509_NAME_add_entry_by_NID(::X509_get_subject_name(made.get()), NID_commonName, MBSTRING_ASC,
                                       const_cast<unsigned char*>(chars(common)), static_cast<int>(common.size()), -1, 0);
  if (!input.empty()) (flags & 2) != 0 ? add_name(made.get(), input.rest()) : add_names(made.get(), input.rest());
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const OpenSsl& library = *OpenSsl::of_process().value();
  static const PeerNames rules = PeerNames::parse("head.svc,*.pod").value();
  fuzz::FuzzInput input(data, size);
  const Certificate certificate = certificate_of(input);
  ::ERR_clear_error();
  if (certificate == nullptr) return 0;
  const auto names = names_of(library, certificate.get());
  for (const std::string& name : names) {
    FUZZ_REQUIRE(!name.empty() && name.size() <= 255);
    FUZZ_REQUIRE(std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c <= '~'; }));
  }
  const auto fits = [](std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name == "head.svc" || (name.size() > 4 && name.ends_with(".pod") && name.find('.') == name.size() - 4);
  };
  const std::string* const found = rules.find(names);
  const auto first = std::find_if(names.begin(), names.end(), fits);
  FUZZ_REQUIRE(found == (first == names.end() ? nullptr : &*first));
  auto* const all = static_cast<GENERAL_NAMES*>(::X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr));
  size_t of_dns = 0;
  for (int i = 0; all != nullptr && i < sk_GENERAL_NAME_num(all); ++i)
    of_dns += sk_GENERAL_NAME_value(all, i)->type == GEN_DNS ? 1 : 0;
  ::GENERAL_NAMES_free(all);
  FUZZ_REQUIRE(names.size() <= std::max<size_t>(of_dns, 1));
  ::ERR_clear_error();
  return 0;
}
