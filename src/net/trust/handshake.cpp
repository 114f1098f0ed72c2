#include "net/trust/handshake.h"

#include <c10/util/Exception.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

namespace farad::net {
namespace {

using base::Code;
using base::Status;

// Where things lie in a hello. Magic, versions and flags stay where they are in every version to come, and so does
// the size, so that the two ends of different ages can still tell each other who is too old.
constexpr char magic[9] = "FARADHS\n";
constexpr size_t version_at = 8;
constexpr size_t oldest_at = 10;
constexpr size_t flags_at = 12;
constexpr size_t nonce_at = 16;
constexpr size_t nonce_bytes = 32;
constexpr size_t purpose_at = nonce_at + nonce_bytes;

constexpr uint32_t flag_secret = 1u << 0;
/// Whoever does not know a flag of the upper half must refuse; one of the lower half may be overlooked. TLS will be
/// offered in the lower half and insisted on in the upper.
constexpr uint32_t flags_to_understand = 0xffff0000u;

constexpr uint32_t verdict_accepted = 1;
constexpr uint32_t verdict_denied = 2;

template <class T>
void put(unsigned char* to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<unsigned char>(value >> (8 * i));
}

template <class T>
T get(const unsigned char* from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (T{from[i]} << (8 * i)));
  return value;
}

std::string versions(unsigned oldest, unsigned newest) {
  return oldest == newest ? std::to_string(newest) : std::to_string(oldest) + " to " + std::to_string(newest);
}

/// The purpose a stranger wrote, fit to be printed.
std::string printable_purpose(const unsigned char* from) {
  std::string text;
  for (size_t i = 0; i < Handshake::purpose_bytes && from[i]; ++i) {
    text += from[i] >= 0x20 && from[i] < 0x7f ? static_cast<char>(from[i]) : '?';
  }
  return text;
}

}  // namespace

Handshake::Handshake(Role role, const Secret& secret, std::string_view purpose)
    : role_(role), secret_(secret), purpose_(purpose) {
  TORCH_CHECK(!purpose.empty() && purpose.size() <= purpose_bytes && purpose.find('\0') == std::string_view::npos,
              "[trust] handshake: the purpose \"", std::string(purpose), "\" must have 1 to ", purpose_bytes,
              " characters");
  std::memcpy(ours_.data(), magic, 8);
  put<uint16_t>(ours_.data() + version_at, version);
  put<uint16_t>(ours_.data() + oldest_at, oldest_version);
  put<uint32_t>(ours_.data() + flags_at, secret.empty() ? 0 : flag_secret);
  TORCH_CHECK(RAND_bytes(ours_.data() + nonce_at, nonce_bytes) == 1,
              "[trust] handshake: the system has no randomness to give");
  std::copy(purpose.begin(), purpose.end(), ours_.begin() + purpose_at);

  // The acceptor keeps silent until it has heard a hello, so that it tells a port scan nothing.
  if (role == Role::Connector) output_.assign(ours_.begin(), ours_.end());
}

std::string Handshake::take_output() { return std::exchange(output_, {}); }

Status Handshake::feed(std::string_view bytes, size_t& consumed) {
  consumed = 0;
  while (wants() > 0 && consumed < bytes.size()) {
    const size_t take = std::min(wants(), bytes.size() - consumed);
    std::memcpy(buffer_.data() + held_, bytes.data() + consumed, take);
    held_ += take;
    consumed += take;

    // Not ours from the first byte on: no need to wait for the rest, which may never come.
    if (step_ == Step::Hello && std::memcmp(buffer_.data(), magic, std::min<size_t>(held_, 8)) != 0) {
      return fail(Code::Protocol, "what came in is not farad's handshake; something else is on the other end");
    }
    if (wants() > 0) break;
    if (Status status = step_ == Step::Hello ? on_hello() : on_proof(); !status.ok()) return status;
  }
  return {};
}

void Handshake::expect(Step step, size_t bytes) {
  step_ = step;
  expected_ = bytes;
  held_ = 0;
}

Status Handshake::fail(Code code, const std::string& why) {
  expect(Step::Failed, 0);
  return {code, "[trust] handshake for \"" + purpose_ + "\": " + why};
}

Status Handshake::on_hello() {
  theirs_ = buffer_;
  // Even if we refuse: the connector sees from it what it is that we do not like.
  if (role_ == Role::Acceptor) output_.append(ours_.begin(), ours_.end());
  if (Status status = judge_hello(); !status.ok()) return fail(status.code(), status.message());

  if (secret_.empty()) {
    expect(Step::Done, 0);
    return {};
  }
  if (role_ == Role::Connector) send_proof(true);
  expect(Step::Proof, proof_bytes);
  return {};
}

Status Handshake::judge_hello() const {
  const auto newest = get<uint16_t>(theirs_.data() + version_at);
  const auto oldest = get<uint16_t>(theirs_.data() + oldest_at);
  const auto flags = get<uint32_t>(theirs_.data() + flags_at);
  if (std::min(newest, version) < std::max(oldest, oldest_version)) {
    return {Code::Protocol, "the other side speaks version " + versions(oldest, newest) + ", we speak " +
                                versions(oldest_version, version) + "; run the same farad on both"};
  }
  if (flags & flags_to_understand) {
    return {Code::Protocol, "the other side insists on features (flags " + std::to_string(flags) +
                                ") that this farad does not know; run the same farad on both"};
  }
  if (!std::equal(ours_.begin() + purpose_at, ours_.end(), theirs_.begin() + purpose_at)) {
    return {Code::Protocol, "the other side came for \"" + printable_purpose(theirs_.data() + purpose_at) +
                                "\"; is an address of another service in use?"};
  }
  const bool they_have_one = (flags & flag_secret) != 0;
  if (they_have_one && secret_.empty()) {
    return {Code::Denied, "the other side has a secret and we have none; give every worker the same FARAD_SECRET"};
  }
  if (!they_have_one && !secret_.empty()) {
    return {Code::Denied, "the other side has no secret and we have one; give every worker the same FARAD_SECRET"};
  }
  // Nonces never repeat: this is our own hello, sent back to make us answer our own challenge.
  if (std::equal(theirs_.begin() + nonce_at, theirs_.begin() + purpose_at, ours_.begin() + nonce_at)) {
    return {Code::Denied, "the other side repeats our own words"};
  }
  return {};
}

Status Handshake::on_proof() {
  const bool acceptor = role_ == Role::Acceptor;
  const auto verdict = get<uint32_t>(buffer_.data());
  if (verdict != verdict_accepted && (acceptor || verdict != verdict_denied)) {
    return fail(Code::Protocol, "a proof with the unknown verdict " + std::to_string(verdict));
  }
  const Mac expected = mac(acceptor ? Role::Connector : Role::Acceptor);
  const bool proven = CRYPTO_memcmp(buffer_.data() + 4, expected.data(), expected.size()) == 0;
  if (verdict == verdict_denied || !proven) {
    if (acceptor) send_proof(false);
    return fail(Code::Denied, "the two sides have different secrets; give every worker the same FARAD_SECRET");
  }
  // Only now: whoever could not prove anything itself gets no proof of ours to work on.
  if (acceptor) send_proof(true);
  expect(Step::Done, 0);
  return {};
}

void Handshake::send_proof(bool accepted) {
  std::array<unsigned char, proof_bytes> message{};
  put<uint32_t>(message.data(), accepted ? verdict_accepted : verdict_denied);
  if (accepted) {
    const Mac proof = mac(role_);
    std::copy(proof.begin(), proof.end(), message.begin() + 4);
  }
  output_.append(message.begin(), message.end());
}

Handshake::Mac Handshake::mac(Role prover) const {
  // The role, so that neither side's proof serves as the other's; both hellos whole, so that neither nonces nor
  // versions, flags or purpose were changed on the way.
  std::string text = prover == Role::Connector ? "farad connector" : "farad acceptor";
  text += '\0';
  const Hello& connector = role_ == Role::Connector ? ours_ : theirs_;
  const Hello& acceptor = role_ == Role::Connector ? theirs_ : ours_;
  text.append(connector.begin(), connector.end());
  text.append(acceptor.begin(), acceptor.end());

  Mac result{};
  unsigned length = 0;
  const auto* made = HMAC(EVP_sha256(), secret_.bytes().data(), static_cast<int>(secret_.bytes().size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(), result.data(), &length);
  TORCH_CHECK(made && length == result.size(), "[trust] handshake: OpenSSL cannot do HMAC-SHA256");
  return result;
}

}  // namespace farad::net
