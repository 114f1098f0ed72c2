#include <ATen/ops/rand.h>
#include <farad/optim.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>

#include "common/member.h"
#include "common/sample.h"
#include "training/roles.h"

namespace farad::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t parts = 8;

at::Tensor make_parameter(int64_t elements) { return at::rand({elements}).set_requires_grad(true); }

uint64_t bytes_in(const fs::path& directory) {
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(directory)) bytes += file.file_size();
  return bytes;
}

void check(bool done, const std::string& what, const fs::path& path) {
  if (!done) throw std::runtime_error("[bench] cannot " + what + " " + path.string());
}

/// What the disk needs: as many bytes into one file, in pieces, and onto the disk.
void write_plainly(const fs::path& path, const std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  check(file >= 0, "make", path);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(file, bytes.data() + done, std::min<size_t>(bytes.size() - done, 8 << 20));
    check(n > 0, "write", path);
    done += static_cast<size_t>(n);
  }
  check(::fsync(file) == 0, "fsync", path);
  ::close(file);
}

void read_plainly(const fs::path& path, std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(file >= 0, "open", path);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::read(file, bytes.data() + done, bytes.size() - done);
    check(n > 0, "read", path);
    done += static_cast<size_t>(n);
  }
  ::close(file);
}

/// Whoever reads it next gets it from the disk. Gives the part of it that stayed in memory all the same, which may be
/// all of it where there is no disk.
double forget(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(file >= 0, "open", path);
  check(::fsync(file) == 0, "fsync", path);
  check(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, "drop from the page cache", path);
  const size_t size = fs::file_size(path), page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  check(memory != MAP_FAILED, "map", path);
  std::vector<unsigned char> pages((size + page - 1) / page);
  check(::mincore(memory, size, pages.data()) == 0, "look at the pages of", path);
  ::munmap(memory, size);
  ::close(file);
  const auto left = std::count_if(pages.begin(), pages.end(), [](unsigned char each) { return (each & 1) != 0; });
  return static_cast<double>(left) / static_cast<double>(pages.size());
}

double forget_all_in(const fs::path& directory) {
  double most = 0;
  for (const auto& entry : fs::directory_iterator(directory)) most = std::max(most, forget(entry.path()));
  return most;
}

}  // namespace

void checkpoint_client(const Words& words) {
  Worker worker = join(words, 0);
  const fs::path directory = words[2], plain = directory.string() + ".plain";
  const int64_t elements = (std::stoll(words[3]) << 20) / (parts * static_cast<int64_t>(sizeof(float)));
  {
    std::vector<RRef<at::Tensor>> parameters;
    for (int64_t i = 0; i < parts; ++i) parameters.push_back(worker.remote<make_parameter>(1, elements));
    DistributedOptimizer<torch::optim::SGD> optimizer(worker, parameters, torch::optim::SGDOptions(0.1));
    // Alternately, so that what else the disk does falls on both.
    std::vector<double> saves, writes, loads, reads, cached_loads, cached_reads;
    double left = 0;
    const auto timed = [](std::vector<double>& times, const std::function<void()>& once) {
      const auto start = Clock::now();
      once();
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    };
    optimizer.save(directory);
    std::vector<char> bytes(bytes_in(directory), 'x');
    for (int i = 0; i < 4; ++i) {
      timed(saves, [&] { optimizer.save(directory); });
      timed(writes, [&] { write_plainly(plain, bytes); });
      left = std::max({left, forget_all_in(directory), forget(plain)});
      timed(loads, [&] { optimizer.load(directory); });
      timed(reads, [&] { read_plainly(plain, bytes); });
      timed(cached_loads, [&] { optimizer.load(directory); });
      timed(cached_reads, [&] { read_plainly(plain, bytes); });
    }
    const nlohmann::json result = {{"bytes", bytes.size()},
                                   {"save", summarise(saves)},
                                   {"write and fsync", summarise(writes)},
                                   {"load", summarise(loads)},
                                   {"read", summarise(reads)},
                                   {"load, cached", summarise(cached_loads)},
                                   {"read, cached", summarise(cached_reads)},
                                   {"left in the cache", left}};
    std::cout << result << std::endl;
  }
  fs::remove_all(directory);
  fs::remove(plain);
  worker.close();
}

}  // namespace farad::bench
