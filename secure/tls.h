// TLS 1.3 between two ends that share a secret, or that have certificates: each proves to the other who it is, then all that they say is
// encrypted, and any change of it is noticed. The handshake is OpenSSL's (secure/openssl.h). The records behind it are ours
// (secure/record_cipher.h), under the secrets that the handshake has made: a short one takes less than half of the time.
//
// With certificates each end verifies the other's: its CA, its dates, its name (secure/certificate.h). A secret gives a key (HKDF with
// SHA-256), which is used as an external pre-shared key with a fresh (EC)DH exchange, so that a secret that leaks later reveals no
// earlier connection. Both ends name the key alike; which secret it is shows in the proof alone.
// There is one cipher, TLS_AES_128_GCM_SHA256, and there are no tickets, early data or older versions.
//
// A session works over a connected, non-blocking socket, which it does not own. A stream that ends without TLS's goodbye was cut off:
// that is kPeerGone with ECONNRESET, as if the kernel had said so. A session holds about 44 KiB.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/mutex.h"
#include "secure/certificate.h"
#include "secure/record_cipher.h"
#include "secure/record_reader.h"
#include "secure/record_writer.h"
#include "secure/secret.h"
#include "secure/settings.h"
#include "tcpx/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tcpx {

struct OpenSsl;
class TlsSession;

enum class TlsRole { kClient, kServer };

/// Shared by the sessions of one endpoint. Any thread.
class TlsContext {
 public:
  /// @return null: connections are in clear; errors of Secret::read_file and of both `create`
  static Result<std::unique_ptr<TlsContext>> create(const SecuritySettings& settings);
  /// @param secret is not needed later. @return kUnsupported: there is no OpenSSL; kExhausted
  static Result<std::unique_ptr<TlsContext>> create(const Secret& secret);
  /// With a certificate, which is read anew once its files have changed: a session that begins looks at them, at most once a second.
  /// If what is there then cannot be used, the present one stays, with a warning. @return also errors of load_certificate
  static Result<std::unique_ptr<TlsContext>> create(const CertificateFiles& files, PeerNames peers);
  ~TlsContext();

  /// A new session. The context must outlive its handshake. @param fd must outlive the session
  Result<std::unique_ptr<TlsSession>> session(int fd, TlsRole role) const;

 private:
  struct Callbacks;
  struct OwnCertificate;
  using ContextPtr = std::unique_ptr<ssl_ctx_st, std::function<void(ssl_ctx_st*)>>;
  explicit TlsContext(const OpenSsl& library);
  Result<ContextPtr> context() const;
  Result<ContextPtr> context_with_certificate() const;
  void read_anew() const TCPX_REQUIRES(mutex_);

  const OpenSsl& library_;
  std::optional<Secret> key_;
  std::unique_ptr<OwnCertificate> own_;  // null with a key
  mutable Mutex mutex_;
  mutable ContextPtr context_ TCPX_GUARDED_BY(mutex_);  // sessions hold it, too
};

/// One thread at a time.
class TlsSession {
 public:
  /// kInClear: what the peer answers is not TLS, and still in the socket.
  enum class Step { kDone, kWantsToRead, kWantsToWrite, kInClear };
  /// First bytes of a peer that speaks TLS: of its handshake, or of its refusal.
  static constexpr std::byte kHandshakeByte{0x16}, kAlertByte{0x15};

  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  /// Goes on with the handshake without waiting. Call it until it is done or in clear.
  /// @return kMismatch: the secrets differ, or a certificate is refused, here or by the peer; kProtocol: the peer does not speak TLS as we do; kPeerGone
  Result<Step> handshake();
  bool is_established() const { return reader_ != nullptr; }
  /// The peer, as its certificate names it; "secret" when that is what it has proved. Empty before.
  const std::string& peer_name() const { return peer_name_; }

  /// Reads as many bytes as have come. Needs an established session. @return number of bytes, 0: none now; kPeerGone at the end
  /// of the stream, without an errno if the peer said goodbye; kProtocol: what came is not what the peer sent
  Result<size_t> read(std::span<std::byte> room);
  /// True when `read` may have more although the socket shows nothing.
  bool may_have_more() const { return may_have_more_; }
  /// Sends as much as the socket takes. What it did not take must come first in the next call. @return number of bytes taken, may be 0;
  /// errors of the socket
  Result<size_t> write(std::span<const std::byte> data);
  /// Tells the peer that no more follows, unless a record is half sent.
  void say_goodbye();

 private:
  friend class TlsContext;
  struct Socket;
  struct Free {
    const OpenSsl* library;
    void operator()(ssl_st* ssl) const;
  };
  TlsSession(const OpenSsl& library, ssl_st* ssl, int fd, TlsRole role, Credential credential)
      : library_(library), ssl_(ssl, Free{&library}), fd_(fd), role_(role), credential_(credential) {}
  bool has_proof() const;
  Status take_over();
  Status failure(const char* operation, long refused, unsigned long error) const;
  Status handshake_failure(int error) const;
  Status ended() const;

  const OpenSsl& library_;
  std::unique_ptr<ssl_st, Free> ssl_;  // of the handshake; null behind it
  const int fd_;
  const TlsRole role_;
  const Credential credential_;
  std::optional<Secret> of_client_, of_server_;  // of the records of each; given on at the end of the handshake
  std::unique_ptr<RecordReader> reader_;         // both null in the handshake
  std::unique_ptr<RecordWriter> writer_;
  std::string peer_name_;
  int error_ = 0;          // errno of the socket in the present call
  bool cut_off_ = false;   // the socket has shown its end
  bool heard_ = false;     // the socket has shown bytes of TLS
  bool in_clear_ = false;  // the socket has shown others
  bool secret_offered_ = false;  // by the client
  bool may_have_more_ = false;
  Status broken_;  // of the handshake
};

}  // namespace tcpx
