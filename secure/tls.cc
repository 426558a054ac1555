#include "secure/tls.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "secure/derive_key.h"
#include "secure/openssl.h"
#include "secure/settings.h"

namespace tcpx {
namespace {

constexpr const char* kHandshake = "TLS handshake";
constexpr std::string_view kKeyLabel = "tcpx-p2p control connection 1";
constexpr std::string_view kKeyName = "tcpx-p2p";  // the identity of the pre-shared key; it is sent in clear
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherId[] = {0x13, 0x01};

const unsigned char* as_chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Status no_memory(const char* what) {
  return Status(Code::kExhausted, kHandshake, concat("OpenSSL makes no ", what));
}

}  // namespace

struct TlsContext::Callbacks {
  // Each handshake gets a session object of its own, because OpenSSL writes into it. Null: none can be made.
  static SSL_SESSION* session_of(const TlsContext& context, SSL* ssl) {
    const OpenSsl& library = context.library_;
    SSL_SESSION* const made = library.SSL_SESSION_new();
    if (made == nullptr) return nullptr;
    const auto key = context.key_.bytes();
    if (library.SSL_SESSION_set1_master_key(made, as_chars(key), key.size()) == 1 &&
        library.SSL_SESSION_set_cipher(made, library.SSL_CIPHER_find(ssl, kCipherId)) == 1 &&
        library.SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1)
      return made;
    library.SSL_SESSION_free(made);
    return nullptr;
  }
  static const TlsContext& of(SSL* ssl) {
    const OpenSsl& library = **OpenSsl::of_process();
    return *static_cast<const TlsContext*>(library.SSL_CTX_get_ex_data(library.SSL_get_SSL_CTX(ssl), 0));
  }
  static int find(SSL* ssl, const unsigned char* name, size_t size, SSL_SESSION** session) {
    *session = nullptr;
    if (size != kKeyName.size() || std::memcmp(name, kKeyName.data(), size) != 0) return 1;
    *session = session_of(of(ssl), ssl);
    return *session != nullptr;
  }
  static int use(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* size, SSL_SESSION** session) {
    *name = reinterpret_cast<const unsigned char*>(kKeyName.data());
    *size = kKeyName.size();
    *session = session_of(of(ssl), ssl);
    return *session != nullptr;
  }
};

Result<std::unique_ptr<TlsContext>> TlsContext::from_environment() {
  TCPX_ASSIGN_OR_RETURN(const auto settings, SecuritySettings::from_environment());
  if (settings.protection == Protection::kOff) return std::unique_ptr<TlsContext>();
  TCPX_ASSIGN_OR_RETURN(const Secret secret, Secret::read_file(settings.secret_file));
  return create(secret);
}

Result<std::unique_ptr<TlsContext>> TlsContext::create(const Secret& secret, uint64_t records_per_key) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  TCPX_ASSIGN_OR_RETURN(Secret key, Secret::zeros(kHmacBytes));
  if (!derive_key(*library, secret.bytes(), kKeyLabel, key.room().first<kHmacBytes>())) return no_memory("key");
  std::unique_ptr<TlsContext> made(new TlsContext(*library, std::move(key), records_per_key));
  SSL_CTX* const context = made->context_ = library->SSL_CTX_new(library->TLS_method());
  if (context == nullptr || library->SSL_CTX_set_ex_data(context, 0, made.get()) != 1 ||
      library->SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) != 1 ||
      library->SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr) != 1 ||
      library->SSL_CTX_set_ciphersuites(context, kCipher) != 1 || library->SSL_CTX_set_num_tickets(context, 0) != 1)
    return no_memory("context for TLS 1.3");
  // The backlog moves in memory between two attempts to send it, and is sent record by record.
  library->SSL_CTX_ctrl(context, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, nullptr);
  library->SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  // A record in one system call, not in one for its header and one for the rest.
  library->SSL_CTX_ctrl(context, SSL_CTRL_SET_READ_AHEAD, 1, nullptr);
  library->SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  library->SSL_CTX_set_psk_find_session_callback(context, Callbacks::find);
  library->SSL_CTX_set_psk_use_session_callback(context, Callbacks::use);
  return made;
}

TlsContext::~TlsContext() {
  library_.SSL_CTX_free(context_);
}

// OpenSSL's way to the socket. Its own one would raise SIGPIPE.
struct TlsSession::Socket {
  static TlsSession& of(BIO* bio) { return *static_cast<TlsSession*>((*OpenSsl::of_process())->BIO_get_data(bio)); }

  static int result(BIO* bio, ssize_t n, int retry) {
    TlsSession& session = of(bio);
    session.library_.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (n >= 0) return static_cast<int>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      session.library_.BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    } else {
      session.error_ = errno;
    }
    return -1;
  }
  static int write(BIO* bio, const char* data, int size) {
    ssize_t n = 0;
    do n = ::send(of(bio).fd_, data, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return result(bio, n, BIO_FLAGS_WRITE);
  }
  static ssize_t receive(int fd, void* data, size_t size, int flags) {
    ssize_t n = 0;
    do n = ::recv(fd, data, size, MSG_DONTWAIT | flags);
    while (n < 0 && errno == EINTR);
    return n;
  }
  static int read(BIO* bio, char* data, int size) {
    TlsSession& session = of(bio);
    std::byte first{};
    if (!session.heard_ && receive(session.fd_, &first, 1, MSG_PEEK) == 1) {
      session.in_clear_ = first != kHandshakeByte && first != kAlertByte;
      session.heard_ = !session.in_clear_;
    }
    if (session.in_clear_) {
      errno = EAGAIN;
      return result(bio, -1, BIO_FLAGS_READ);
    }
    const ssize_t n = receive(session.fd_, data, static_cast<size_t>(size), 0);
    session.cut_off_ = n == 0;
    return result(bio, n, BIO_FLAGS_READ);
  }
  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return of(bio).cut_off_ ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
  // Never freed: sessions may outlive the context that made them.
  static BIO_METHOD* method(const OpenSsl& library) {
    static BIO_METHOD* const made = [&] {
      BIO_METHOD* const methods = library.BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tcpx socket");
      if (methods == nullptr) return methods;
      library.BIO_meth_set_write(methods, write);
      library.BIO_meth_set_read(methods, read);
      library.BIO_meth_set_ctrl(methods, control);
      return methods;
    }();
    return made;
  }
};

Result<std::unique_ptr<TlsSession>> TlsContext::session(int fd, TlsRole role) const {
  SSL* const ssl = library_.SSL_new(context_);
  if (ssl == nullptr) return no_memory("session");
  std::unique_ptr<TlsSession> made(new TlsSession(library_, ssl, fd, records_per_key_));
  BIO_METHOD* const method = TlsSession::Socket::method(library_);
  BIO* const bio = method == nullptr ? nullptr : library_.BIO_new(method);
  if (bio == nullptr) return no_memory("session");
  library_.BIO_set_data(bio, made.get());
  library_.BIO_set_init(bio, 1);
  library_.SSL_set_bio(ssl, bio, bio);
  if (role == TlsRole::kServer) {
    library_.SSL_set_accept_state(ssl);
    return made;
  }
  library_.SSL_set_connect_state(ssl);
  // A server that has a certificate instead of the secret is refused: nobody is trusted to sign one.
  library_.SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
  return made;
}

TlsSession::~TlsSession() {
  library_.SSL_free(ssl_);
}

// Errors of an earlier call, by anybody on this thread, would be taken for this one's.
void TlsSession::begin() {
  library_.ERR_clear_error();
  error_ = 0;
}

// The end of the stream comes before errors of the socket, because OpenSSL answers it with an alert, which may fail.
// @param error of SSL_get_error
Status TlsSession::failure(const char* operation, int error) const {
  const char* const closed = "connection closed by the peer";
  if (error == SSL_ERROR_ZERO_RETURN || (cut_off_ && !heard_)) return Status(Code::kPeerGone, operation, closed);
  if (cut_off_) return Status(Code::kPeerGone, operation, concat(closed, " without TLS's goodbye"), Domain::kErrno, ECONNRESET);
  if (error_ != 0) return stream_error(operation, error_);
  const unsigned long code = library_.ERR_peek_error();
  switch (established_ || ERR_GET_LIB(code) != ERR_LIB_SSL ? 0 : ERR_GET_REASON(code)) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:         // the client's proof is of another secret,
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:  // and this is how OpenSSL tells the client
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:      // the same, of other libraries
      return Status(Code::kMismatch, operation, "the secrets differ: give both ends the same UCCL_TCPX_SECRET_FILE");
    default:
      break;
  }
  const char* const reason = library_.ERR_reason_error_string(code);
  return Status(Code::kProtocol, operation, concat("TLS: ", reason != nullptr ? reason : "unknown error"));
}

Result<TlsSession::Step> TlsSession::handshake() {
  TCPX_RETURN_IF_ERROR(broken_);
  begin();
  const int done = library_.SSL_do_handshake(ssl_);
  if (done == 1) {
    if (library_.SSL_session_reused(ssl_) != 1)
      return broken_ = Status(Code::kProtocol, kHandshake, "the peer has not proved that it has the secret");
    established_ = true;
    return Step::kDone;
  }
  const int error = library_.SSL_get_error(ssl_, done);
  if (error == SSL_ERROR_WANT_READ) return in_clear_ ? Step::kInClear : Step::kWantsToRead;
  if (error == SSL_ERROR_WANT_WRITE) return Step::kWantsToWrite;
  return broken_ = failure(kHandshake, error);
}

Result<size_t> TlsSession::read(std::span<std::byte> room) {
  size_t total = 0;
  while (total < room.size() && broken_.is_ok()) {
    begin();
    size_t n = 0;
    const int done = library_.SSL_read_ex(ssl_, room.data() + total, room.size() - total, &n);
    total += n;
    if (done == 1) continue;
    const int error = library_.SSL_get_error(ssl_, done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      broken_ = failure("read frame", error);
      break;
    }
    may_have_more_ = false;
    return total;
  }
  if (total == 0 && !broken_.is_ok()) return broken_;
  may_have_more_ = true;
  return total;
}

Result<size_t> TlsSession::write(std::span<const std::byte> data) {
  size_t total = 0;
  while (total < data.size()) {
    begin();
    if (records_ >= records_per_key_ && !half_sent_) {
      if (library_.SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return failure("send frame", SSL_ERROR_SSL);
      records_ = 0;
    }
    size_t n = 0;
    const int done = library_.SSL_write_ex(ssl_, data.data() + total, data.size() - total, &n);
    half_sent_ = done != 1;
    if (done == 1) {
      total += n;
      ++records_;
      continue;
    }
    const int error = library_.SSL_get_error(ssl_, done);
    if (error != SSL_ERROR_WANT_WRITE && error != SSL_ERROR_WANT_READ) return failure("send frame", error);
    break;
  }
  return total;
}

void TlsSession::say_goodbye() {
  if (!established_ || half_sent_) return;
  begin();
  (void)library_.SSL_shutdown(ssl_);
}

Result<TlsSession::Key> TlsSession::export_key(std::string_view label, std::span<const std::byte> context) const {
  Key key;
  library_.ERR_clear_error();
  if (!established_ || library_.SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(key.data()), key.size(),
                                                           label.data(), label.size(), as_chars(context), context.size(), 1) != 1)
    return Status(Code::kInternal, "export key", "the TLS session is not established");
  return key;
}

}  // namespace tcpx
