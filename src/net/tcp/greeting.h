#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "net/tcp/address.h"
#include "net/tcp/asio.h"
#include "net/tcp/hello.h"
#include "net/tcp/stream.h"
#include "net/trust/handshake.h"

namespace farad::net::tcp {

/// A connection that is not up yet. It has so much time to get there; then its socket is closed, and whatever step is
/// under way fails. Lives on the control thread.
class Greeting : public std::enable_shared_from_this<Greeting> {
 public:
  using Socket = asio::ip::tcp::socket;

  /// `within` starts to run now.
  static std::shared_ptr<Greeting> start(Socket socket, base::Duration within);

  /// To a numeric address, which is all that workers publish, if the policy of trust allows it.
  asio::awaitable<base::Status> connect(Address address, const Secret& secret);
  asio::awaitable<base::Status> shake_hands(Handshake::Role role, const Secret& secret);
  asio::awaitable<base::Status> send(Hello hello);
  asio::awaitable<base::Status> receive(Hello& hello);

  /// Ends it early; the step under way fails.
  void give_up();
  bool over() const { return !socket_.is_open(); }
  /// The socket, with nothing read beyond the last message.
  std::unique_ptr<Stream> take_stream();

 private:
  explicit Greeting(Socket socket) : socket_(std::move(socket)), timer_(socket_.get_executor()) {}
  base::Status failure(const char* step, const std::error_code& error) const;

  Socket socket_;
  asio::steady_timer timer_;
  bool timed_out_ = false;
};

}  // namespace farad::net::tcp
