#include "net/trust/secret.h"

#include <openssl/crypto.h>

namespace farad::net {

Secret::~Secret() {
  // A string that was moved from is empty but may still hold the bytes in place, so all of its room is wiped.
  bytes_.resize(bytes_.capacity());
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

}  // namespace farad::net
