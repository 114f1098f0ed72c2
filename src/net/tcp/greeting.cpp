#include "net/tcp/greeting.h"

#include <array>

#include "net/trust/policy.h"

namespace farad::net::tcp {
namespace {

using asio::redirect_error;
using asio::use_awaitable;
using asio::ip::tcp;
using base::Code;
using base::Status;

}  // namespace

std::shared_ptr<Greeting> Greeting::start(Socket socket, base::Duration within) {
  std::shared_ptr<Greeting> greeting(new Greeting(std::move(socket)));
  greeting->timer_.expires_after(within);
  greeting->timer_.async_wait([weak = std::weak_ptr(greeting)](const std::error_code& cancelled) {
    const auto self = weak.lock();
    if (cancelled || !self) return;
    self->timed_out_ = true;
    self->give_up();
  });
  return greeting;
}

asio::awaitable<Status> Greeting::connect(Address address, const Secret& secret) {
  std::error_code error;
  const auto host = asio::ip::make_address(address.host, error);
  if (error) co_return Status{Code::Invalid, "\"" + address.host + "\" is no numeric address"};
  const tcp::endpoint place(host, address.port);
  const Status allowed = may_talk(secret, *place.data());
  if (!allowed.ok()) co_return allowed;
  co_await socket_.async_connect(place, redirect_error(use_awaitable, error));
  if (error) co_return failure("connect", error);
  co_return Status{};
}

asio::awaitable<Status> Greeting::shake_hands(Handshake::Role role, const Secret& secret) {
  Handshake handshake(role, secret, "tcp");
  Status verdict;
  for (;;) {
    std::error_code error;
    const std::string output = handshake.take_output();
    if (!output.empty()) {
      co_await asio::async_write(socket_, asio::buffer(output), redirect_error(use_awaitable, error));
    }
    if (!verdict.ok()) co_return verdict;
    if (error) co_return failure("handshake", error);
    if (handshake.done()) co_return Status{};

    std::array<char, Handshake::hello_bytes> bytes;
    const size_t got = co_await socket_.async_read_some(asio::buffer(bytes.data(), handshake.wants()),
                                                        redirect_error(use_awaitable, error));
    if (error) co_return failure("handshake", error);
    size_t consumed = 0;
    verdict = handshake.feed({bytes.data(), got}, consumed);
  }
}

asio::awaitable<Status> Greeting::send(Hello hello) {
  std::error_code error;
  const Hello::Encoded encoded = hello.encode();
  co_await asio::async_write(socket_, asio::buffer(encoded), redirect_error(use_awaitable, error));
  if (error) co_return failure("hello", error);
  co_return Status{};
}

asio::awaitable<Status> Greeting::receive(Hello& hello) {
  std::error_code error;
  Hello::Encoded encoded;
  co_await asio::async_read(socket_, asio::buffer(encoded), redirect_error(use_awaitable, error));
  if (error) co_return failure("hello", error);
  co_return Hello::decode(encoded, hello);
}

void Greeting::give_up() {
  std::error_code ignored;
  socket_.close(ignored);
}

std::unique_ptr<Stream> Greeting::take_stream() {
  timer_.cancel();
  std::error_code error;
  const int descriptor = socket_.release(error);
  return error ? nullptr : make_plain_stream(descriptor);
}

Status Greeting::failure(const char* step, const std::error_code& error) const {
  if (timed_out_) return {Code::PeerLost, std::string(step) + ": no answer in time"};
  if (error == asio::error::eof) return {Code::PeerLost, std::string(step) + ": it closed the connection"};
  return {Code::PeerLost, std::string(step) + ": " + error.message()};
}

}  // namespace farad::net::tcp
