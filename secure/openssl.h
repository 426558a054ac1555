// OpenSSL 3, loaded when it is first needed: a program that has no credential runs without it. The types of the functions are those of the
// headers with which this was built.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "tcpx/status.h"

#define TCPX_OF_LIBSSL(X)                                                                                                  \
  X(SSL_CIPHER_find)                                                                                                       \
  X(SSL_CTX_check_private_key)                                                                                             \
  X(SSL_CTX_ctrl)                                                                                                          \
  X(SSL_CTX_free)                                                                                                          \
  X(SSL_CTX_get0_certificate)                                                                                              \
  X(SSL_CTX_get_cert_store)                                                                                                \
  X(SSL_CTX_get_ex_data)                                                                                                   \
  X(SSL_CTX_load_verify_locations) X(SSL_CTX_new) X(SSL_CTX_set_cert_verify_callback) X(SSL_CTX_set_ciphersuites)          \
      X(SSL_CTX_set_default_passwd_cb) X(SSL_CTX_set_verify) X(SSL_CTX_use_PrivateKey_file)                                \
          X(SSL_CTX_use_certificate_chain_file) X(SSL_get0_peer_certificate) X(SSL_get_ex_data)                            \
              X(SSL_get_ex_data_X509_STORE_CTX_idx) X(SSL_get_verify_result) X(SSL_set_ex_data) X(SSL_CTX_set_ex_data)     \
                  X(SSL_CTX_set_num_tickets) X(SSL_CTX_set_options) X(SSL_CTX_set_keylog_callback)                         \
                      X(SSL_CTX_set_psk_find_session_callback) X(SSL_CTX_set_psk_use_session_callback) X(SSL_SESSION_free) \
                          X(SSL_SESSION_new) X(SSL_SESSION_set1_master_key) X(SSL_SESSION_set_cipher)                      \
                              X(SSL_SESSION_set_protocol_version) X(SSL_do_handshake) X(SSL_free) X(SSL_get_SSL_CTX)       \
                                  X(SSL_get_error) X(SSL_new) X(SSL_session_reused) X(SSL_set_accept_state) X(SSL_set_bio) \
                                      X(SSL_set_connect_state) X(SSL_set_verify) X(TLS_method)
#define TCPX_OF_LIBCRYPTO(X)                                                                                                  \
  X(BIO_clear_flags)                                                                                                          \
  X(BIO_get_data)                                                                                                             \
  X(BIO_meth_new)                                                                                                             \
  X(BIO_meth_set_ctrl)                                                                                                        \
  X(BIO_meth_set_read)                                                                                                        \
  X(BIO_meth_set_write)                                                                                                       \
  X(BIO_new) X(BIO_set_data) X(BIO_set_flags) X(BIO_set_init) X(ERR_clear_error) X(ERR_peek_error) X(ERR_reason_error_string) \
      X(EVP_CIPHER_CTX_ctrl) X(EVP_CIPHER_CTX_free) X(EVP_CIPHER_CTX_new) X(EVP_CipherFinal_ex) X(EVP_CipherInit_ex)          \
          X(EVP_CipherUpdate) X(EVP_MAC_CTX_dup) X(EVP_MAC_CTX_free) X(EVP_MAC_CTX_new) X(EVP_MAC_fetch) X(EVP_MAC_final)     \
              X(EVP_MAC_free) X(EVP_MAC_init) X(EVP_MAC_update) X(EVP_aes_128_gcm) X(OPENSSL_init_crypto)                     \
                  X(ASN1_STRING_get0_data) X(ASN1_STRING_length) X(ASN1_TIME_to_tm) X(GENERAL_NAMES_free)                     \
                      X(GENERAL_NAME_get0_value) X(OPENSSL_sk_num) X(OPENSSL_sk_value) X(X509_NAME_get_text_by_NID)           \
                          X(X509_STORE_CTX_free) X(X509_STORE_CTX_get0_cert) X(X509_STORE_CTX_get_error)                      \
                              X(X509_STORE_CTX_get_ex_data) X(X509_STORE_CTX_init) X(X509_STORE_CTX_new)                      \
                                  X(X509_STORE_CTX_set_error) X(X509_STORE_CTX_set_flags) X(X509_get0_notAfter)               \
                                      X(X509_get0_notBefore) X(X509_get_ext_d2i) X(X509_get_subject_name) X(X509_verify_cert) \
                                          X(X509_verify_cert_error_string)

namespace tcpx {

struct OpenSsl {
#define TCPX_MEMBER(name) decltype(&::name) name = nullptr;
  TCPX_OF_LIBSSL(TCPX_MEMBER)
  TCPX_OF_LIBCRYPTO(TCPX_MEMBER)
#undef TCPX_MEMBER

  /// Opens both libraries, for good. @return kUnsupported, with the package that has them
  static Result<OpenSsl> load(const char* ssl_name, const char* crypto_name);
  /// The process's own, loaded by the first call. Any thread.
  static Result<const OpenSsl*> of_process();
};

}  // namespace tcpx
