#include "secure/tls.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
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
constexpr const char *kHandshake = "TLS handshake", *kRead = "read frame";
constexpr std::string_view kKeyLabel = "tcpx-p2p control connection 1";
constexpr std::string_view kKeyName = "tcpx-p2p";  // the identity of the pre-shared key; it is sent in clear
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherId[] = {0x13, 0x01};
constexpr std::string_view kOfClient = "CLIENT_TRAFFIC_SECRET_0 ", kOfServer = "SERVER_TRAFFIC_SECRET_0 ";
constexpr const char* kClosed = "connection closed by the peer";

const unsigned char* as_chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Status cut_off(const char* operation) {
  return Status(Code::kPeerGone, operation, concat(kClosed, " without TLS's goodbye"), Domain::kErrno, ECONNRESET);
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
  static TlsSession& session_with(const OpenSsl& library, const SSL* ssl) {
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
  // The one way in which libssl tells secrets: as lines of SSLKEYLOGFILE, with the secret in hexadecimal at the end of each. Here
  // they go to no file.
  static void take_secret(const SSL* ssl, const char* line) {
    const std::string_view text(line);
    TlsSession& session = session_with(**OpenSsl::of_process(), ssl);
    std::optional<Secret>* const secret = text.starts_with(kOfClient)   ? &session.of_client_
                                          : text.starts_with(kOfServer) ? &session.of_server_
                                                                        : nullptr;
    if (secret == nullptr || text.size() < 2 * kHmacBytes) return;
    auto made = Secret::zeros(kHmacBytes);
    if (!made.is_ok()) return;
    const char* digits = text.data() + text.size() - 2 * kHmacBytes;
    for (std::byte& byte : made->room()) {
      uint8_t value = 0;
      if (std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) return;
      byte = std::byte{value};
      digits += 2;
    }
    *secret = std::move(*made);
  }
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

Result<std::unique_ptr<TlsContext>> TlsContext::create(const Secret& secret) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  TCPX_ASSIGN_OR_RETURN(Secret key, Secret::zeros(kHmacBytes));
  if (!derive_key(*library, secret.bytes(), kKeyLabel, key.room().first<kHmacBytes>())) return no_memory("key");
  std::unique_ptr<TlsContext> made(new TlsContext(*library));
  made->key_ = std::move(key);
  const MutexLock lock(made->mutex_);
  TCPX_ASSIGN_OR_RETURN(made->context_, made->context());
  library->SSL_CTX_set_psk_use_session_callback(made->context_.get(), Callbacks::use);
  return made;
}

Result<std::unique_ptr<TlsContext>> TlsContext::create(const CertificateFiles& files, PeerNames peers) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  std::unique_ptr<TlsContext> made(new TlsContext(*library));
  made->own_ = std::make_unique<OwnCertificate>(
      OwnCertificate{.files = files, .peers = std::move(peers), .looks_again = Deadline::after(kLookAtFiles)});
  made->own_->seen = made->own_->look();
  const MutexLock lock(made->mutex_);
  TCPX_ASSIGN_OR_RETURN(made->context_, made->context_with_certificate());
  return made;
}

TlsContext::TlsContext(const OpenSsl& library) : library_(library) {}

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
  library.SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  // Records behind the handshake must still be in the socket at its end.
  library.SSL_CTX_ctrl(context, SSL_CTRL_SET_READ_AHEAD, 0, nullptr);
  library.SSL_CTX_set_keylog_callback(context, Callbacks::take_secret);
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
    const auto came = [&](ssize_t n) {
      session.cut_off_ = n == 0;
      return result(bio, n, BIO_FLAGS_READ);
    };
    if (!session.heard_) {
      // Nothing is read whose first byte was not seen, also if it has come since the look.
      std::byte first{};
      const ssize_t n = receive(session.fd_, &first, 1, MSG_PEEK);
      if (n != 1) return came(n);
      session.in_clear_ = first != kHandshakeByte && first != kAlertByte;
      session.heard_ = !session.in_clear_;
    }
    if (session.in_clear_) {
      errno = EAGAIN;
      return came(-1);
    }
    return came(receive(session.fd_, data, static_cast<size_t>(size), 0));
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
      new TlsSession(library_, ssl, fd, role, own_ != nullptr ? Credential::kCertificate : Credential::kSecret));
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

TlsSession::~TlsSession() = default;

void TlsSession::Free::operator()(ssl_st* ssl) const {
  library->SSL_free(ssl);
}

bool TlsSession::has_proof() const {
  const bool by_secret = library_.SSL_session_reused(ssl_.get()) == 1;
  if (credential_ == Credential::kSecret) return by_secret;
  return !by_secret && library_.SSL_get0_peer_certificate(ssl_.get()) != nullptr &&
         library_.SSL_get_verify_result(ssl_.get()) == X509_V_OK;
}

// @param refused as in TlsFailure. @param error of OpenSSL
Status TlsSession::failure(const char* operation, long refused, unsigned long error) const {
  std::string why = describe_mismatch({.own = credential_,
                                       .is_server = role_ == TlsRole::kServer,
                                       .established = is_established(),
                                       .secret_offered = secret_offered_,
                                       .peer_name = peer_name_,
                                       .refused = refused,
                                       .reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0},
                                      library_);
  if (!why.empty()) return Status(Code::kMismatch, operation, std::move(why));
  const char* const reason = library_.ERR_reason_error_string(error);
  return Status(Code::kProtocol, operation, concat("TLS: ", reason != nullptr ? reason : "unknown error"));
}

// The end of the stream comes before errors of the socket, because OpenSSL answers it with an alert, which may fail.
// @param error of SSL_get_error
Status TlsSession::handshake_failure(int error) const {
  if (error == SSL_ERROR_ZERO_RETURN || (cut_off_ && !heard_)) return Status(Code::kPeerGone, kHandshake, kClosed);
  if (cut_off_) return cut_off(kHandshake);
  if (error_ != 0) return stream_error(kHandshake, error_);
  return failure(kHandshake, library_.SSL_get_verify_result(ssl_.get()), library_.ERR_peek_error());
}

Result<TlsSession::Step> TlsSession::handshake() {
  TCPX_RETURN_IF_ERROR(broken_);
  if (is_established()) return Step::kDone;
  library_.ERR_clear_error();  // of an earlier call, by anybody on this thread
  error_ = 0;
  const int done = library_.SSL_do_handshake(ssl_.get());
  if (done == 1) {
    broken_ = has_proof() ? take_over() : Status(Code::kProtocol, kHandshake, "the peer has not proved who it is");
    TCPX_RETURN_IF_ERROR(broken_);
    return Step::kDone;
  }
  const int error = library_.SSL_get_error(ssl_.get(), done);
  if (error == SSL_ERROR_WANT_READ) return in_clear_ ? Step::kInClear : Step::kWantsToRead;
  if (error == SSL_ERROR_WANT_WRITE) return Step::kWantsToWrite;
  return broken_ = handshake_failure(error);
}

// Goes on with our own records, of which neither end has sent or read one yet.
Status TlsSession::take_over() {
  if (!of_client_ || !of_server_) return no_memory("secrets of the records");
  const bool is_client = role_ == TlsRole::kClient;
  Secret &own = is_client ? *of_client_ : *of_server_, &peers = is_client ? *of_server_ : *of_client_;
  TCPX_ASSIGN_OR_RETURN(auto opens, RecordCipher::create(std::move(peers), RecordCipher::Work::kOpens));
  TCPX_ASSIGN_OR_RETURN(auto seals, RecordCipher::create(std::move(own), RecordCipher::Work::kSeals));
  of_client_.reset();
  of_server_.reset();
  writer_ = std::make_unique<RecordWriter>(fd_, std::move(seals), 1);
  reader_ = std::make_unique<RecordReader>(fd_, std::move(opens), 1);
  ssl_.reset();
  if (credential_ == Credential::kSecret) peer_name_ = "secret";
  return Status::ok();
}

// Why the peer has ended the stream. What it thinks of this end's certificate may come as late as this.
Status TlsSession::ended() const {
  const auto alert = reader_->alert();
  if (!alert) return cut_off(kRead);
  if (*alert == SSL3_AD_CLOSE_NOTIFY) return Status(Code::kPeerGone, kRead, kClosed);
  return failure(kRead, X509_V_OK, ERR_PACK(ERR_LIB_SSL, 0, SSL_AD_REASON_OFFSET + *alert));
}

Result<size_t> TlsSession::read(std::span<std::byte> room) {
  if (room.empty()) return size_t{0};
  const iovec piece{room.data(), room.size()};
  TCPX_ASSIGN_OR_RETURN(const std::optional<size_t> come, reader_->read({&piece, 1}));
  if (come && *come == 0) return ended();
  may_have_more_ = come == room.size();
  return come.value_or(0);
}

Result<size_t> TlsSession::write(std::span<const std::byte> data) {
  size_t total = 0;
  while (total < data.size()) {
    const iovec rest{const_cast<std::byte*>(data.data()) + total, data.size() - total};
    TCPX_ASSIGN_OR_RETURN(const size_t gone, writer_->write({&rest, 1}));
    total += gone;
    if (writer_->has_unsent()) break;
  }
  return total;
}

void TlsSession::say_goodbye() {
  if (is_established()) writer_->end();
}

}  // namespace tcpx
