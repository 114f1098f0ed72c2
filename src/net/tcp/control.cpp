#include "net/tcp/control.h"

#include <fcntl.h>

#include <deque>
#include <map>

#include "net/tcp/greeting.h"
#include "net/trust/policy.h"

namespace farad::net::tcp {
namespace {

using asio::redirect_error;
using asio::use_awaitable;
using asio::ip::tcp;
using base::Code;
using base::Status;
using namespace std::chrono_literals;

// Strangers that say nothing hold a descriptor each until their time is up; beyond so many the oldest goes first.
// Members need milliseconds, so it is not them.
constexpr size_t most_arrivals = 256;
constexpr auto rest_after_failed_accept = 50ms;

std::string rank_text(base::Rank rank) { return "rank " + std::to_string(rank.value); }

}  // namespace

class Control::Impl {
 public:
  Impl(ControlOptions options, ControlEvents& events, base::Runtime& runtime)
      : options_(std::move(options)), events_(events), runtime_(runtime) {
    if (Status status = listen(); !status.ok()) status.raise();
  }

  const std::string& address() const { return address_; }

  void start() {
    asio::co_spawn(io_, accept(), asio::detached);
    if (options_.tick.count() > 0) asio::co_spawn(io_, tick(), asio::detached);
    thread_ = runtime_.start("farad-tcp", [this] { io_.run(); });
  }

  void stop() {
    io_.stop();
    thread_.reset();
  }

  void dial(Peer peer, std::string address) { asio::co_spawn(io_, dial_out(peer, std::move(address)), asio::detached); }

 private:
  // A dial of ours under way. Until the hello is sent the other side knows nothing of it and it may be dropped.
  struct Dial {
    Dial(asio::io_context& io, std::shared_ptr<Greeting> g) : greeting(std::move(g)), ended(io) {
      ended.expires_at(asio::steady_timer::time_point::max());
    }
    std::shared_ptr<Greeting> greeting;
    bool hello_sent = false;
    bool dropped = false;
    asio::steady_timer ended;  // Cancelled when it has.
  };
  struct Seen {
    uint64_t birth = 0;
    uint64_t attempt = 0;
  };

  Status listen();
  asio::awaitable<void> accept();
  asio::awaitable<void> tick();
  asio::awaitable<void> dial_out(Peer peer, std::string address);
  asio::awaitable<Status> introduce(std::shared_ptr<Dial> dial, Peer peer, std::string address, Hello& answer);
  asio::awaitable<void> expect_crossing(Peer peer);
  asio::awaitable<void> welcome(std::shared_ptr<Greeting> greeting, std::string from);
  asio::awaitable<Hello::Answer> judge(const Hello& hello, const Greeting& greeting);

  bool is_stale(const Hello& hello) const;
  Hello make_hello(base::Rank to, Hello::Answer answer, uint64_t attempt) const;
  void greet(tcp::socket socket);
  void drop_dial(base::Rank peer);

  ControlOptions options_;
  ControlEvents& events_;
  base::Runtime& runtime_;
  asio::io_context io_{1};
  std::string address_;

  // The control thread's.
  tcp::acceptor acceptor_{io_};
  std::map<base::Rank, std::shared_ptr<Dial>> dials_;
  std::map<base::Rank, Seen> seen_;  // The last hello of each.
  std::deque<std::weak_ptr<Greeting>> arrivals_;
  uint64_t attempts_ = 0;

  std::unique_ptr<base::Thread> thread_;
};

Status Control::Impl::listen() {
  std::string toward_others;
  if (options_.secret.empty()) {
    if (options_.bind_host.empty()) options_.bind_host = "127.0.0.1";
  } else {
    toward_others = address_toward(options_.meeting_host);
    if (options_.bind_host.empty()) options_.bind_host = is_v6(toward_others) ? "::" : "0.0.0.0";
  }
  const auto cannot = [this](const std::error_code& error) {
    return Status{Code::Invalid, "[tcp] listen on \"" + options_.bind_host + "\": " + error.message()};
  };
  std::error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(options_.bind_host, "0", tcp::resolver::passive, error);
  if (error || found.empty()) return cannot(error);
  const tcp::endpoint place = found.begin()->endpoint();
  if (Status status = may_listen(options_.secret, *place.data()); !status.ok()) return status;

  acceptor_.open(place.protocol(), error);
  if (!error && place.protocol() == tcp::v6()) acceptor_.set_option(asio::ip::v6_only(false), error);
  if (!error) acceptor_.bind(place, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  const tcp::endpoint bound = error ? place : acceptor_.local_endpoint(error);
  if (error) return cannot(error);
  ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  address_ = Address{reachable_host(bound.address().to_string(), toward_others), bound.port()}.text();
  return {};
}

asio::awaitable<void> Control::Impl::accept() {
  for (;;) {
    std::error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(redirect_error(use_awaitable, error));
    if (!error) {
      greet(std::move(socket));
      continue;
    }
    options_.log.warning("[tcp] accept: ", error.message());
    // Out of descriptors, most likely; the connection stays where it is, so asking again at once would only spin.
    asio::steady_timer rest(io_);
    rest.expires_after(rest_after_failed_accept);
    co_await rest.async_wait(redirect_error(use_awaitable, error));
  }
}

void Control::Impl::greet(tcp::socket socket) {
  std::error_code error;
  const tcp::endpoint from = socket.remote_endpoint(error);
  if (error) return;  // Gone already.
  if (Status status = may_talk(options_.secret, *from.data()); !status.ok()) {
    return options_.log.warning("[tcp] dropped a connection: ", status.message());
  }
  std::erase_if(arrivals_, [](const auto& arrival) { return arrival.expired(); });
  if (arrivals_.size() >= most_arrivals) {
    if (const auto oldest = arrivals_.front().lock()) oldest->give_up();
    arrivals_.pop_front();
  }
  auto greeting = Greeting::start(std::move(socket), options_.greet_within);
  arrivals_.push_back(greeting);
  asio::co_spawn(io_, welcome(std::move(greeting), to_text(*from.data())), asio::detached);
}

asio::awaitable<void> Control::Impl::welcome(std::shared_ptr<Greeting> greeting, std::string from) {
  Hello hello;
  Status status = co_await greeting->shake_hands(Handshake::Role::Acceptor, options_.secret);
  if (status.ok()) status = co_await greeting->receive(hello);
  if (!status.ok()) {
    // One that ended before it said anything wrong is no news: our peers do that when two dials cross.
    const auto level = status.code() == Code::PeerLost ? base::Level::Info : base::Level::Warning;
    options_.log.write(level, "[tcp] dropped a connection from " + from + ": " + status.message());
    co_return;
  }
  const Hello::Answer answer = co_await judge(hello, *greeting);
  if (greeting->over()) co_return;
  if (answer != Hello::Answer::Welcome) {
    status = co_await greeting->send(make_hello(hello.from, answer, hello.attempt));
    co_return;
  }

  // From here on without a pause: nothing else may be decided about this peer in between.
  auto stream = greeting->take_stream();
  if (!stream) co_return;
  Hello::Encoded encoded = make_hello(hello.from, answer, hello.attempt).encode();
  iovec slot{encoded.data(), encoded.size()};
  // A fresh connection has room for it; if not, it is broken, and our own dial, if there is one, goes on.
  if (stream->write(std::span(&slot, 1)).bytes != encoded.size()) co_return;
  seen_[hello.from] = {hello.birth, hello.attempt};
  drop_dial(hello.from);
  events_.on_up(hello.from, std::move(stream), hello.address);
}

asio::awaitable<Hello::Answer> Control::Impl::judge(const Hello& hello, const Greeting& greeting) {
  // A rank beyond the group is of another job, whose worker had our address before. The layers above count by rank.
  if (hello.to != options_.self || hello.from == options_.self || hello.from.value >= options_.size) {
    co_return Hello::Answer::Stranger;
  }
  while (!greeting.over()) {
    if (is_stale(hello)) co_return Hello::Answer::Stale;
    const auto found = dials_.find(hello.from);
    if (found == dials_.end() || !found->second->hello_sent) break;
    // Both hellos are out. The lower rank's counts, and the higher rank answers it once it knows what became of its
    // own: the other side may have taken that one before it dialed itself.
    if (options_.self < hello.from) co_return Hello::Answer::Crossing;
    const std::shared_ptr<Dial> ours = found->second;
    std::error_code cancelled;
    co_await ours->ended.async_wait(redirect_error(use_awaitable, cancelled));
  }
  co_return Hello::Answer::Welcome;
}

bool Control::Impl::is_stale(const Hello& hello) const {
  const auto seen = seen_.find(hello.from);
  return seen != seen_.end() && seen->second.birth == hello.birth && hello.attempt <= seen->second.attempt;
}

Hello Control::Impl::make_hello(base::Rank to, Hello::Answer answer, uint64_t attempt) const {
  return {options_.self, to, answer, options_.birth, attempt, address_};
}

void Control::Impl::drop_dial(base::Rank peer) {
  const auto found = dials_.find(peer);
  if (found == dials_.end()) return;
  found->second->dropped = true;
  found->second->greeting->give_up();
}

asio::awaitable<void> Control::Impl::dial_out(Peer peer, std::string address) {
  if (!events_.is_wanted(peer)) co_return;
  const auto dial = std::make_shared<Dial>(io_, Greeting::start(tcp::socket(io_), options_.greet_within));
  dials_[peer.rank] = dial;
  Hello answer;
  Status status = co_await introduce(dial, peer, address, answer);
  if (const auto found = dials_.find(peer.rank); found != dials_.end() && found->second == dial) dials_.erase(found);
  dial->ended.cancel();
  if (dial->dropped) co_return;

  if (status.ok() && answer.answer == Hello::Answer::Crossing) {
    co_await expect_crossing(peer);
    co_return;
  }
  if (status.ok() && (answer.answer != Hello::Answer::Welcome || answer.from != peer.rank)) {
    status = {Code::Protocol, answer.answer == Hello::Answer::Stale
                                  ? "it has heard of a later connection of ours"
                                  : "there is " + rank_text(answer.from) + " instead; is its address out of date?"};
  }
  std::unique_ptr<Stream> stream = status.ok() ? dial->greeting->take_stream() : nullptr;
  if (stream) {
    events_.on_up(peer.rank, std::move(stream), answer.address);
  } else {
    events_.on_unreachable(
        peer, {status.code(), "[tcp] connect to " + rank_text(peer.rank) + " at " + address + ": " + status.message()});
  }
}

asio::awaitable<Status> Control::Impl::introduce(std::shared_ptr<Dial> dial, Peer peer, std::string address,
                                                 Hello& answer) {
  Address place;
  Status status = Address::parse(address, place);
  if (status.ok()) status = co_await dial->greeting->connect(place, options_.secret);
  if (status.ok()) status = co_await dial->greeting->shake_hands(Handshake::Role::Connector, options_.secret);
  if (!status.ok() || dial->dropped) co_return status;
  dial->hello_sent = true;
  status = co_await dial->greeting->send(make_hello(peer.rank, Hello::Answer::None, ++attempts_));
  if (status.ok()) status = co_await dial->greeting->receive(answer);
  co_return status;
}

asio::awaitable<void> Control::Impl::expect_crossing(Peer peer) {
  asio::steady_timer patience(io_);
  patience.expires_after(options_.greet_within);
  std::error_code error;
  co_await patience.async_wait(redirect_error(use_awaitable, error));
  if (!events_.is_wanted(peer)) co_return;
  events_.on_unreachable(peer, {Code::PeerLost, "[tcp] connect to " + rank_text(peer.rank) +
                                                    ": it dialed us at the same time, but never got through"});
}

asio::awaitable<void> Control::Impl::tick() {
  asio::steady_timer timer(io_);
  for (;;) {
    timer.expires_after(options_.tick);
    std::error_code error;
    co_await timer.async_wait(redirect_error(use_awaitable, error));
    events_.on_tick();
  }
}

Control::Control(ControlOptions options, ControlEvents& events, base::Runtime& runtime)
    : impl_(std::make_unique<Impl>(std::move(options), events, runtime)), address_(impl_->address()) {}

Control::~Control() { stop(); }

void Control::start() { impl_->start(); }
void Control::dial(Peer peer, std::string address) { impl_->dial(peer, std::move(address)); }

void Control::stop() {
  if (!impl_) return;
  impl_->stop();
  impl_.reset();
}

}  // namespace farad::net::tcp
