#include "net/rendezvous/ledger.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace farad::net {
namespace {

constexpr std::string_view ledger_magic = "farad rendezvous 1\n";
constexpr std::string_view proof_purpose = "farad rendezvous note\n";
constexpr size_t length_bytes = 4;
constexpr size_t proof_bytes = 32;
constexpr off_t most_bytes = 64 << 20;

// Far beyond the end of the file, so that no lock ever covers a byte that is there.
constexpr off_t pen_at = off_t{1} << 40;
constexpr off_t chairs_at = pen_at + 1;
constexpr off_t chairs = 1 << 16;

std::string explain(const std::string& doing, int error) { return doing + ": " + std::strerror(error); }

base::Status failed(const std::string& doing, int error) {
  std::string message = explain(doing, error);
  if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL)
    message += "; this file system cannot lock ranges of a file, use tcp://host:port instead";
  return {base::Code::Invalid, message};
}

struct flock range(off_t at, off_t length, short type) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = at;
  range.l_len = length;
  return range;
}

/// Whether another open file holds a lock in there.
bool locked(int file, off_t at, off_t length) {
  auto probe = range(at, length, F_WRLCK);
  return ::fcntl(file, F_OFD_GETLK, &probe) == 0 && probe.l_type != F_UNLCK;
}

uint32_t read_length(std::string_view bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return length;
}

bool write_all(int file, std::string_view bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
    at += n;
  }
  return true;
}

}  // namespace

Ledger::Ledger(std::string path, Secret secret) : path_(std::move(path)), secret_(std::move(secret)) {}

base::Status Ledger::open() {
  // Not through a link: in a directory that all may write to, somebody could have us clear a file of ours.
  base::Fd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return {base::Code::Invalid, explain("cannot open " + path_, errno)};
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return failed("cannot look at " + path_, errno);
  if (!S_ISREG(info.st_mode)) return {base::Code::Invalid, path_ + " is not a regular file"};
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {base::Code::Denied, path_ + " can be written by other users; remove it, or chmod 600 if it is yours"};
  file_ = std::move(file);
  return {};
}

bool Ledger::replaced() const {
  struct stat held{}, named{};
  if (::fstat(file_.get(), &held) != 0 || ::stat(path_.c_str(), &named) != 0) return true;
  return held.st_ino != named.st_ino || held.st_dev != named.st_dev;
}

base::Status Ledger::lock(off_t at, short type, bool& got) const {
  auto wanted = range(at, 1, type);
  got = ::fcntl(file_.get(), F_OFD_SETLK, &wanted) == 0;
  if (got || errno == EAGAIN || errno == EACCES) return {};
  return failed("cannot lock " + path_, errno);
}

base::Status Ledger::take_pen(Pen pen) {
  if (!file_) {
    if (auto status = open(); !status.ok()) return status;
  }
  bool got = false;
  if (auto status = lock(pen_at, pen == Pen::Read ? F_RDLCK : F_WRLCK, got); !status.ok()) return status;
  if (got && replaced()) {
    if (seated_) return {base::Code::Invalid, path_ + " was removed or replaced while workers met there"};
    // The last one of a former meeting removed the file between our open and our lock. The next try makes a new one.
    file_.reset();
    got = false;
  }
  return got ? base::Status() : base::Status(base::Code::Busy, path_ + " is locked by another worker");
}

void Ledger::drop_pen() {
  bool got = false;
  if (file_) static_cast<void>(lock(pen_at, F_UNLCK, got));
}

base::Status Ledger::take_chair(base::Rank rank, bool& taken) {
  auto status = lock(chairs_at + rank.value, F_WRLCK, taken);
  seated_ = taken;
  return status;
}

bool Ledger::taken_by_other(base::Rank rank) const { return locked(file_.get(), chairs_at + rank.value, 1); }

bool Ledger::abandoned() const { return !locked(file_.get(), chairs_at, chairs); }

base::Status Ledger::clear_if_abandoned() {
  if (!abandoned()) return {};
  char start[ledger_magic.size()];
  const ssize_t n = ::pread(file_.get(), start, sizeof(start), 0);
  if (n < 0) return failed("cannot read " + path_, errno);
  if (!ledger_magic.starts_with(std::string_view(start, static_cast<size_t>(n)))) return foreign();
  if (::ftruncate(file_.get(), 0) != 0) return failed("cannot clear " + path_, errno);
  return {};
}

base::Status Ledger::foreign() const {
  return {base::Code::Protocol,
          path_ + " is not a rendezvous file and was left alone; remove it or choose another path"};
}

void Ledger::leave() {
  if (!file_) return;
  auto all = range(chairs_at, chairs, F_UNLCK);
  ::fcntl(file_.get(), F_OFD_SETLK, &all);
  if (abandoned()) ::unlink(path_.c_str());
  file_.reset();  // And the pen with it.
  seated_ = false;
}

std::string Ledger::proof(std::string_view payload) const {
  // Without a secret the key is empty and this is no more than a checksum.
  const std::string message = std::string(proof_purpose).append(payload);
  std::string out(proof_bytes, '\0');
  unsigned length = 0;
  HMAC(EVP_sha256(), secret_.bytes().data(), static_cast<int>(secret_.bytes().size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
       reinterpret_cast<unsigned char*>(out.data()), &length);
  return out;
}

base::Status Ledger::read_bytes(std::string& text) const {
  struct stat info{};
  if (::fstat(file_.get(), &info) != 0) return failed("cannot look at " + path_, errno);
  if (info.st_size > most_bytes || info.st_size < end_) return foreign();
  text.resize(static_cast<size_t>(info.st_size - end_));
  for (size_t have = 0; have < text.size();) {
    const ssize_t n = ::pread(file_.get(), text.data() + have, text.size() - have, end_ + static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed("cannot read " + path_, n < 0 ? errno : EIO);
    have += static_cast<size_t>(n);
  }
  return {};
}

base::Status Ledger::read(std::vector<meeting::Note>& notes) {
  notes.clear();
  std::string text;
  if (auto status = read_bytes(text); !status.ok()) return status;
  std::string_view rest = text;
  const auto done_with = [&](size_t bytes) {
    rest.remove_prefix(bytes);
    end_ += static_cast<off_t>(bytes);
  };
  if (end_ == 0) {
    if (!ledger_magic.starts_with(rest.substr(0, ledger_magic.size()))) return foreign();
    if (rest.size() < ledger_magic.size()) return {};  // New, or its maker died while it wrote the first line.
    done_with(ledger_magic.size());
  }
  while (rest.size() >= length_bytes) {
    const size_t length = read_length(rest);
    if (length > meeting::ask_bytes) return foreign();
    // A note that ends too early was being written when its writer died: nobody may write without the pen.
    if (rest.size() < length_bytes + length + proof_bytes) break;
    const auto payload = rest.substr(length_bytes, length);
    const auto claimed = rest.substr(length_bytes + length, proof_bytes);
    if (CRYPTO_memcmp(claimed.data(), proof(payload).data(), proof_bytes) != 0)
      return {base::Code::Denied, path_ + " is in use by workers with another secret: a job that still runs, or a " +
                                      "worker of this one that was given another FARAD_SECRET"};
    if (auto status = decode(payload, notes.emplace_back()); !status.ok()) return status;
    done_with(length_bytes + length + proof_bytes);
  }
  return {};
}

base::Status Ledger::append(const meeting::Note& note) {
  const auto payload = encode(note);
  if (payload.size() > meeting::ask_bytes)
    return {base::Code::Invalid, "what this worker says of itself takes " + std::to_string(payload.size()) +
                                     " bytes, the limit is " + std::to_string(meeting::ask_bytes)};
  std::string bytes;
  if (end_ == 0) bytes = ledger_magic;
  for (size_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>(payload.size() >> (8 * i) & 0xff);
  bytes += payload + proof(payload);
  if (end_ + static_cast<off_t>(bytes.size()) > most_bytes)
    return {base::Code::Invalid, path_ + " is full; start the job anew with another path"};
  // What follows the last whole note, if anything, is the unfinished one of a writer that died.
  if (::ftruncate(file_.get(), end_) != 0 || !write_all(file_.get(), bytes, end_))
    return failed("cannot write " + path_, errno);
  end_ += static_cast<off_t>(bytes.size());
  return {};
}

}  // namespace farad::net
