#include "run/output.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace farad::run {

Output::Output(int fd) : fd_(fd), terminal_(::isatty(fd) == 1), piece_(PIPE_BUF) {
  struct stat about{};
  if (::fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) piece_ = enough;
}

void Output::write_some() {
  const size_t size = std::min(piece_, queue_.size() - written_);
  const auto count = ::write(fd_, queue_.data() + written_, size);
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    error_ = errno;
    written_ = queue_.size();
  } else {
    written_ += static_cast<size_t>(count);
  }
  // Moving the rest to the front costs as much as writing it; do so only once the most part is behind us.
  if (written_ * 2 >= queue_.size()) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace farad::run
