#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include <farad/error.h>

#include "base/log.h"
#include "net/fabric.h"

namespace farad::net {
namespace {

using base::Var;

std::string read_secret_file(const std::string& path) {
  struct stat info{};
  std::ifstream file(path, std::ios::binary);
  if (!file || ::stat(path.c_str(), &info) != 0) {
    throw Error("[net] FARAD_SECRET_FILE=" + path + " cannot be read");
  }
  if (info.st_mode & (S_IRWXG | S_IRWXO)) {
    throw Error("[net] FARAD_SECRET_FILE=" + path + " is open to others: chmod 600 it");
  }
  std::ostringstream text;
  text << file.rdbuf();
  std::string secret = text.str();
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.empty()) throw Error("[net] FARAD_SECRET_FILE=" + path + " is empty");
  return secret;
}

Secret secret_of(const base::Environment& environment) {
  if (environment.has(Var::Secret)) return Secret(*environment.text(Var::Secret));
  if (environment.has(Var::SecretFile)) return Secret(read_secret_file(*environment.text(Var::SecretFile)));
  return {};
}

}  // namespace

FabricOptions FabricOptions::from(const WorkerOptions& options, const base::Environment& environment) {
  FabricOptions fabric;
  fabric.name = options.name;
  fabric.rank = options.rank;
  fabric.size = options.size;
  fabric.rendezvous = options.rendezvous;
  fabric.transport = options.transport;
  fabric.join_timeout = options.join_timeout;
  fabric.lost_after = options.lost_after;
  fabric.secret = secret_of(environment);
  fabric.bind = environment.text(Var::Bind).value_or("");
  fabric.queue_bytes = static_cast<size_t>(environment.number(Var::QueueBytes));
  fabric.pool_bytes = static_cast<size_t>(environment.number(Var::PoolBytes));
  fabric.limits.body_bytes = static_cast<uint32_t>(environment.number(Var::LimitBody));
  fabric.limits.payload_bytes = static_cast<uint64_t>(environment.number(Var::LimitPayload));
  fabric.limits.tensors = static_cast<uint32_t>(environment.number(Var::LimitTensors));
  fabric.limits.dims = static_cast<uint32_t>(environment.number(Var::LimitDims));
  fabric.limits.depth = static_cast<uint32_t>(environment.number(Var::LimitDepth));
  fabric.limits.elements = static_cast<uint32_t>(environment.number(Var::LimitElements));
  fabric.spin = std::chrono::microseconds(environment.number(Var::Spin));
  environment.check(Var::Log).raise();
  fabric.log_level = base::log_level(environment);
  return fabric;
}

}  // namespace farad::net
