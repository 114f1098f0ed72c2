#include "demo/files.h"

#include <farad/error.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace farad::demo {

namespace fs = std::filesystem;

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  const auto aside = path + ".new";
  {
    std::ofstream out(aside, std::ios::binary);
    out << text;
    out.flush();
    if (!out) throw Error("[demo] cannot write " + aside);
  }
  fs::rename(aside, path);
}

std::optional<Checkpoints::Checkpoint> Checkpoints::last() const {
  std::optional<Checkpoint> found;
  for (const int64_t steps : all()) {
    // The manifest is renamed into place last, so it stands for the rest.
    if ((!found || steps > found->steps) && fs::exists(path_of(steps) + "/manifest.json"))
      found = {steps, path_of(steps)};
  }
  return found;
}

void Checkpoints::save(int64_t steps, const std::function<void(const std::string&)>& write) const {
  write(path_of(steps));
  for (const int64_t other : all()) {
    if (other != steps) remove(other);
  }
}

void Checkpoints::clear() const {
  for (const int64_t steps : all()) remove(steps);
}

void Checkpoints::remove(int64_t steps) const {
  // First: if the process ends before the rest is gone too, last() must not take it for whole.
  fs::remove(path_of(steps) + "/manifest.json");
  fs::remove_all(path_of(steps));
}

std::vector<int64_t> Checkpoints::all() const {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory_, none)) {
    const auto name = entry.path().filename().string();
    int64_t number = 0;
    if (!name.starts_with("step")) continue;
    const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) steps.push_back(number);
  }
  return steps;
}

}  // namespace farad::demo
