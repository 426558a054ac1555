#include "secure/tls.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "secure/derive_key.h"
#include "secure/openssl.h"
#include "secure/settings.h"
#include "secure/tls_mismatch.h"

namespace tcpx {
namespace {

constexpr Duration kLookAtFiles = std::chrono::seconds(1);
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
    const auto key = context.key_->bytes();
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
  static TlsSession& session_with(const OpenSsl& library, SSL* ssl) {
    return *static_cast<TlsSession*>(library.SSL_get_ex_data(ssl, 0));
  }
  static int find(SSL* ssl, const unsigned char* name, size_t size, SSL_SESSION** session) {
    *session = nullptr;
    if (size != kKeyName.size() || std::memcmp(name, kKeyName.data(), size) != 0) return 1;
    const TlsContext& context = of(ssl);
    session_with(context.library_, ssl).secret_offered_ = true;
    if (!context.key_) return 1;
    *session = session_of(context, ssl);
    return *session != nullptr;
  }
  static int use(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* size, SSL_SESSION** session) {
    *name = reinterpret_cast<const unsigned char*>(kKeyName.data());
    *size = kKeyName.size();
    *session = session_of(of(ssl), ssl);
    return *session != nullptr;
  }
  static int verify(X509_STORE_CTX* store, void* argument);
};

struct TlsContext::OwnCertificate {
  /// By which a file that has changed is known: of each file its device, inode, size, and time of change.
  using Stamp = std::vector<int64_t>;

  CertificateFiles files;
  PeerNames peers;
  Deadline looks_again;
  Stamp seen;

  Stamp look() const {
    Stamp stamp;
    for (const std::string* path : {&files.certificate, &files.key, &files.ca}) {
      struct stat file {};
      (void)::stat(path->c_str(), &file);  // zeros for one that is missing
      for (const auto number :
           {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino), static_cast<int64_t>(file.st_size),
            static_cast<int64_t>(file.st_mtim.tv_sec), static_cast<int64_t>(file.st_mtim.tv_nsec)})
        stamp.push_back(number);
    }
    return stamp;
  }
};

// An alert tells the peer of a name that is not taken as of nothing else: handshake_failure.
int TlsContext::Callbacks::verify(X509_STORE_CTX* store, void* argument) {
  const TlsContext& context = *static_cast<const TlsContext*>(argument);
  const OpenSsl& library = context.library_;
  auto* const ssl = static_cast<SSL*>(library.X509_STORE_CTX_get_ex_data(store, library.SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto names = names_of(library, library.X509_STORE_CTX_get0_cert(store));
  std::string& name = session_with(library, ssl).peer_name_;
  name = names.empty() ? "a certificate without a name" : names.front();
  if (library.X509_verify_cert(store) != 1) return 0;
  const PeerNames& peers = context.own_->peers;
  const std::string* const found = peers.find(names);
  if (found != nullptr) name = *found;
  if (found != nullptr || peers.any()) return 1;
  library.X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

Result<std::unique_ptr<TlsContext>> TlsContext::create(const SecuritySettings& settings) {
  if (settings.protection == Protection::kOff) return std::unique_ptr<TlsContext>();
  if (settings.credential == Credential::kCertificate) return create(settings.certificate, settings.peers);
  TCPX_ASSIGN_OR_RETURN(const Secret secret, Secret::read_file(settings.secret_file));
  return create(secret);
}

Result<std::unique_ptr<TlsContext>> TlsContext::create(const Secret& secret, uint64_t records_per_key) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  TCPX_ASSIGN_OR_RETURN(Secret key, Secret::zeros(kHmacBytes));
  if (!derive_key(*library, secret.bytes(), kKeyLabel, key.room().first<kHmacBytes>())) return no_memory("key");
  std::unique_ptr<TlsContext> made(new TlsContext(*library, records_per_key));
  made->key_ = std::move(key);
  const MutexLock lock(made->mutex_);
  TCPX_ASSIGN_OR_RETURN(made->context_, made->context());
  library->SSL_CTX_set_psk_use_session_callback(made->context_.get(), Callbacks::use);
  return made;
}

Result<std::unique_ptr<TlsContext>> TlsContext::create(const CertificateFiles& files, PeerNames peers) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  std::unique_ptr<TlsContext> made(new TlsContext(*library, kRecordsPerKey));
  made->own_ = std::make_unique<OwnCertificate>(
      OwnCertificate{.files = files, .peers = std::move(peers), .looks_again = Deadline::after(kLookAtFiles)});
  made->own_->seen = made->own_->look();
  const MutexLock lock(made->mutex_);
  TCPX_ASSIGN_OR_RETURN(made->context_, made->context_with_certificate());
  return made;
}

TlsContext::TlsContext(const OpenSsl& library, uint64_t records_per_key) : library_(library), records_per_key_(records_per_key) {}

TlsContext::~TlsContext() = default;

Result<TlsContext::ContextPtr> TlsContext::context() const {
  const OpenSsl& library = library_;
  ContextPtr made(library.SSL_CTX_new(library.TLS_method()), [&library](SSL_CTX* context) { library.SSL_CTX_free(context); });
  SSL_CTX* const context = made.get();
  if (context == nullptr || library.SSL_CTX_set_ex_data(context, 0, const_cast<TlsContext*>(this)) != 1 ||
      library.SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) != 1 ||
      library.SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr) != 1 ||
      library.SSL_CTX_set_ciphersuites(context, kCipher) != 1 || library.SSL_CTX_set_num_tickets(context, 0) != 1)
    return no_memory("context for TLS 1.3");
  // The backlog moves in memory between two attempts to send it, and is sent record by record.
  library.SSL_CTX_ctrl(context, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, nullptr);
  library.SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  // A record in one system call, not in one for its header and one for the rest.
  library.SSL_CTX_ctrl(context, SSL_CTRL_SET_READ_AHEAD, 1, nullptr);
  library.SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  library.SSL_CTX_set_psk_find_session_callback(context, Callbacks::find);
  return made;
}

Result<TlsContext::ContextPtr> TlsContext::context_with_certificate() const {
  TCPX_ASSIGN_OR_RETURN(ContextPtr made, context());
  TCPX_RETURN_IF_ERROR(load_certificate(library_, made.get(), own_->files));
  library_.SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  library_.SSL_CTX_set_cert_verify_callback(made.get(), Callbacks::verify, const_cast<TlsContext*>(this));
  return made;
}

// Files that cannot be used are tried again only when they have changed.
void TlsContext::read_anew() const {
  if (!own_->looks_again.expired()) return;
  own_->looks_again = Deadline::after(kLookAtFiles);
  OwnCertificate::Stamp now = own_->look();
  if (now == own_->seen) return;
  own_->seen = std::move(now);
  auto made = context_with_certificate();
  if (!made.is_ok()) {
    log(LogLevel::kWarning, "certificate: its files have changed, and the one from before stays: ", made.status().to_string());
    return;
  }
  context_ = std::move(*made);
  log(LogLevel::kInfo, "certificate: read anew from ", own_->files.certificate);
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
  SSL* ssl = nullptr;
  {
    const MutexLock lock(mutex_);
    if (own_ != nullptr) read_anew();
    ssl = library_.SSL_new(context_.get());
  }
  if (ssl == nullptr) return no_memory("session");
  std::unique_ptr<TlsSession> made(
      new TlsSession(library_, ssl, fd, records_per_key_, own_ != nullptr ? Credential::kCertificate : Credential::kSecret));
  if (library_.SSL_set_ex_data(ssl, 0, made.get()) != 1) return no_memory("session");
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
  if (own_ == nullptr) library_.SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
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

bool TlsSession::has_proof() const {
  const bool by_secret = library_.SSL_session_reused(ssl_) == 1;
  if (credential_ == Credential::kSecret) return by_secret;
  return !by_secret && library_.SSL_get0_peer_certificate(ssl_) != nullptr && library_.SSL_get_verify_result(ssl_) == X509_V_OK;
}

// The end of the stream comes before errors of the socket, because OpenSSL answers it with an alert, which may fail.
// @param error of SSL_get_error
Status TlsSession::failure(const char* operation, int error) const {
  const char* const closed = "connection closed by the peer";
  if (error == SSL_ERROR_ZERO_RETURN || (cut_off_ && !heard_)) return Status(Code::kPeerGone, operation, closed);
  if (cut_off_) return Status(Code::kPeerGone, operation, concat(closed, " without TLS's goodbye"), Domain::kErrno, ECONNRESET);
  if (error_ != 0) return stream_error(operation, error_);
  const unsigned long code = library_.ERR_peek_error();
  std::string why = describe_mismatch({.own = credential_,
                                       .is_server = library_.SSL_is_server(ssl_) == 1,
                                       .established = established_,
                                       .secret_offered = secret_offered_,
                                       .peer_name = peer_name_,
                                       .refused = library_.SSL_get_verify_result(ssl_),
                                       .reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0},
                                      library_);
  if (!why.empty()) return Status(Code::kMismatch, operation, std::move(why));
  const char* const reason = library_.ERR_reason_error_string(code);
  return Status(Code::kProtocol, operation, concat("TLS: ", reason != nullptr ? reason : "unknown error"));
}

Result<TlsSession::Step> TlsSession::handshake() {
  TCPX_RETURN_IF_ERROR(broken_);
  begin();
  const int done = library_.SSL_do_handshake(ssl_);
  if (done == 1) {
    if (!has_proof()) return broken_ = Status(Code::kProtocol, kHandshake, "the peer has not proved who it is");
    if (credential_ == Credential::kSecret) peer_name_ = "secret";
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
    // If nothing more has come with it, the socket need not be asked again.
    if (done == 1 && library_.SSL_has_pending(ssl_) == 1) continue;
    const int error = done == 1 ? SSL_ERROR_WANT_READ : library_.SSL_get_error(ssl_, done);
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

}  // namespace tcpx
