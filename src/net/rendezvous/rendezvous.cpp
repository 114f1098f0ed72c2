#include "net/rendezvous/rendezvous.h"

#include "net/rendezvous/file.h"
#include "net/rendezvous/local.h"
#include "net/rendezvous/place.h"
#include "net/rendezvous/tcp.h"

namespace farad::net {

base::Status open_rendezvous(const std::string& url, base::Rank self, base::Runtime& runtime,
                             std::unique_ptr<Rendezvous>& out) {
  Place place;
  if (auto status = parse_place(url, place); !status.ok()) return status;
  switch (place.kind) {
    case Place::Kind::Tcp:
      out = make_tcp_rendezvous(std::move(place), self, runtime);
      break;
    case Place::Kind::File:
      out = make_file_rendezvous(std::move(place), runtime);
      break;
    case Place::Kind::Local:
      out = make_local_rendezvous(std::move(place), runtime);
      break;
  }
  return {};
}

}  // namespace farad::net
