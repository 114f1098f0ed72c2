#include "net/local/hub.h"

#include <unistd.h>

#include <random>
#include <sstream>
#include <utility>

namespace farad::net {
namespace {

std::string fresh_token() {
  std::random_device random;
  std::ostringstream text;
  text << getpid() << '-' << std::hex << random() << random() << random() << random();
  return text.str();
}

}  // namespace

void LocalPlace::ring() {
  base::Lock lock(bell_mutex_);
  if (bell_) bell_->ring();
}

void LocalPlace::tell_of_room() {
  {
    base::Lock lock(mutex);
    room = true;
    any.store(true, std::memory_order_release);
  }
  ring();
}

void LocalPlace::unhook() {
  base::Lock lock(bell_mutex_);
  bell_ = nullptr;
}

LocalHub::LocalHub() : token_(fresh_token()) {}

std::shared_ptr<LocalHub> LocalHub::of_process() {
  static base::Mutex mutex;
  static std::weak_ptr<LocalHub> shared;
  static pid_t owner = 0;
  base::Lock lock(mutex);
  auto hub = shared.lock();
  if (!hub || owner != getpid()) {  // A forked child does not reach its parent's workers.
    shared = hub = std::make_shared<LocalHub>();
    owner = getpid();
  }
  return hub;
}

std::string LocalHub::open(const std::shared_ptr<LocalPlace>& place) {
  base::Lock lock(mutex_);
  const std::string address = token_ + "-" + std::to_string(next_++);
  open_[address] = place;
  return address;
}

std::shared_ptr<LocalPlace> LocalHub::find(const std::string& address) {
  auto it = open_.find(address);
  return it == open_.end() ? nullptr : it->second;
}

bool LocalHub::reaches(const std::string& address) {
  base::Lock lock(mutex_);
  return find(address) != nullptr;
}

std::shared_ptr<LocalLink> LocalHub::connect(const std::shared_ptr<LocalPlace>& from, base::Rank to,
                                             const std::string& address) {
  base::Lock hub(mutex_);
  auto far = find(address);
  if (!far) return nullptr;
  auto link = std::make_shared<LocalLink>();
  {
    base::Lock lock(from->mutex);
    if (from->closed) return nullptr;
    if (auto it = from->links.find(to); it != from->links.end()) return it->second;  // The other side was first.
    link->ends[0].place = from;
    link->ends[0].incarnation = base::Incarnation(++from->lives[to]);
    link->ends[1].place = far;
    from->links[to] = link;
  }
  if (far == from) {  // A worker that talks to itself.
    link->ends[1].incarnation = link->ends[0].incarnation;
    return link;
  }
  base::Lock lock(far->mutex);
  link->ends[1].incarnation = base::Incarnation(++far->lives[from->rank]);
  far->links[from->rank] = link;
  return link;
}

void LocalHub::close(LocalPlace& place, const std::string& address) {
  base::Lock hub(mutex_);
  open_.erase(address);
  std::map<base::Rank, std::shared_ptr<LocalLink>> links;
  std::deque<LocalArrival> dropped;  // Tensors die outside of the lock.
  {
    base::Lock lock(place.mutex);
    place.closed = true;
    links = std::exchange(place.links, {});
    dropped = std::exchange(place.arrivals, {});
  }
  place.unhook();
  for (auto& [peer, link] : links) {
    const int side = link->side_of(place);
    const auto& other = link->ends[1 - side].place;
    if (other.get() == &place) continue;
    {
      base::Lock lock(other->mutex);
      link->ends[side].open = false;
      if (auto it = other->links.find(place.rank); it != other->links.end() && it->second == link) {
        other->links.erase(it);
      }
      LocalArrival end;
      end.link = link;
      end.side = 1 - side;
      end.over = true;
      other->arrivals.push_back(std::move(end));
      other->any.store(true, std::memory_order_release);
    }
    other->ring();
  }
}

}  // namespace farad::net
