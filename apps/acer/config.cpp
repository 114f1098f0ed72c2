#include "acer/config.h"

#include <elf.h>
#include <farad/error.h>
#include <farad/version.h>
#include <link.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

namespace farad::acer {
namespace {

#ifdef __clang__
constexpr char compiler[] = "clang " __clang_version__;
#else
constexpr char compiler[] = "g++ " __VERSION__;
#endif

/// The id among notes that lie one behind the other, each a head, a name and bytes.
std::string id_among(std::span<const unsigned char> notes, size_t alignment) {
  const auto aligned = [&](size_t size) { return (size + alignment - 1) / alignment * alignment; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes.data(), sizeof head);
    const size_t name = sizeof head, bytes = aligned(name + head.n_namesz), end = bytes + head.n_descsz;
    if (end > notes.size()) break;
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && std::memcmp(notes.data() + name, "GNU", 4) == 0) {
      std::string text;
      for (const unsigned byte : notes.subspan(bytes, head.n_descsz)) {
        text += "0123456789abcdef"[byte / 16];
        text += "0123456789abcdef"[byte % 16];
      }
      return text;
    }
    notes = notes.subspan(std::min(aligned(end), notes.size()));
  }
  return "";
}

}  // namespace

std::string build_id() {
  std::string id;
  const auto look = [](dl_phdr_info* object, size_t, void* into) {
    for (const auto& part : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
      auto& found = *static_cast<std::string*>(into);
      if (part.p_type != PT_NOTE || !found.empty()) continue;
      const auto* notes = reinterpret_cast<const unsigned char*>(object->dlpi_addr + part.p_vaddr);
      found = id_among({notes, part.p_memsz}, std::max<size_t>(part.p_align, 4));
    }
    return 1;  // The first object is the program, and no other is asked for.
  };
  ::dl_iterate_phdr(look, &id);
  return id;
}

void write_config(const Settings& settings) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const nlohmann::ordered_json config{
      {"farad", FARAD_VERSION}, {"build", build_id()}, {"compiler", compiler},
      {"torch", TORCH_VERSION}, {"host", host},        {"settings", nlohmann::ordered_json::parse(to_json(settings))},
  };
  const auto path = settings.out + "/config.json";
  std::ofstream out(path);
  out << config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  if (!out.flush()) throw Error("[acer] cannot write " + path);
}

}  // namespace farad::acer
