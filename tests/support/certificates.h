// A CA and certificates that it signs, in files, for as long as the objects live. Needs libcrypto.
#pragma once

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "secure/certificate.h"
#include "tests/support/secret_file.h"

namespace tcpx::testing {

struct Signed {
  std::string certificate, key;  ///< texts in PEM
};

/// What a certificate says.
struct Subject {
  std::string common_name = "worker";
  std::string dns = {};              ///< names with commas between them; "": none
  long begins = -3600, ends = 3600;  ///< seconds from now
  std::string usage = {};            ///< extendedKeyUsage; "": none
};

class Authority {
 public:
  explicit Authority(const std::string& name = "test CA") {
    certificate_.reset(::X509_new());
    fill(certificate_.get(), key_.get(), {.common_name = name});
    ::X509_set_issuer_name(certificate_.get(), ::X509_get_subject_name(certificate_.get()));
    extend(certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
    EXPECT_GT(::X509_sign(certificate_.get(), key_.get(), ::EVP_sha256()), 0);
  }

  Signed sign(const Subject& subject) const {
    const Key key(::EVP_EC_gen("P-256"), ::EVP_PKEY_free);
    const Certificate made(::X509_new(), ::X509_free);
    fill(made.get(), key.get(), subject);
    ::X509_set_issuer_name(made.get(), ::X509_get_subject_name(certificate_.get()));
    std::string names;
    for (const char c : subject.dns.empty() ? "" : "DNS:" + subject.dns) names += c == ',' ? ",DNS:" : std::string(1, c);
    if (!names.empty()) extend(made.get(), NID_subject_alt_name, names);
    if (!subject.usage.empty()) extend(made.get(), NID_ext_key_usage, subject.usage);
    EXPECT_GT(::X509_sign(made.get(), key_.get(), ::EVP_sha256()), 0);
    return {text_of(made.get()), text_of(key.get())};
  }
  std::string certificate() const { return text_of(certificate_.get()); }

 private:
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

  static void fill(X509* certificate, EVP_PKEY* key, const Subject& subject) {
    static long serial = 0;
    ::X509_set_version(certificate, X509_VERSION_3);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate), ++serial);
    ::X509_gmtime_adj(X509_getm_notBefore(certificate), subject.begins);
    ::X509_gmtime_adj(X509_getm_notAfter(certificate), subject.ends);
    ::X509_set_pubkey(certificate, key);
    if (!subject.common_name.empty())
      ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(subject.common_name.c_str()), -1, -1, 0);
  }
  static void extend(X509* certificate, int what, const std::string& value) {
    X509V3_CTX context{};
    X509_EXTENSION* const extension = ::X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
    ASSERT_NE(extension, nullptr) << value;
    ::X509_add_ext(certificate, extension, -1);
    ::X509_EXTENSION_free(extension);
  }
  template <class Write>
  static std::string written(Write write) {
    const std::unique_ptr<BIO, void (*)(BIO*)> memory(::BIO_new(::BIO_s_mem()), ::BIO_free_all);
    EXPECT_EQ(write(memory.get()), 1);
    char* data = nullptr;
    const long size = BIO_get_mem_data(memory.get(), &data);
    return {data, static_cast<size_t>(size)};
  }
  static std::string text_of(X509* certificate) {
    return written([&](BIO* to) { return ::PEM_write_bio_X509(to, certificate); });
  }
  static std::string text_of(EVP_PKEY* key) {
    return written([&](BIO* to) { return ::PEM_write_bio_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr); });
  }

  Key key_{::EVP_EC_gen("P-256"), ::EVP_PKEY_free};
  Certificate certificate_{nullptr, ::X509_free};
};

/// The three files of an end.
struct EndFiles {
  SecretFile certificate, key, ca;
  EndFiles(const Signed& own, const std::string& trusted, mode_t mode = 0600)
      : certificate(own.certificate, 0644), key(own.key, mode), ca(trusted, 0644) {}
  EndFiles(const Authority& authority, const Subject& subject) : EndFiles(authority.sign(subject), authority.certificate()) {}
  CertificateFiles paths() const { return {certificate.path(), key.path(), ca.path()}; }
};

}  // namespace tcpx::testing
