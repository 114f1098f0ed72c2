#include <farad/detail/function.h>

#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "base/mutex.h"

namespace farad::detail {
namespace {

uint64_t hash_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

/// What identifies one build of a module: the note its linker left, or else all of its bytes.
std::string_view build_note(const dl_phdr_info& module) {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const auto& part = module.dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const char* next = reinterpret_cast<const char*>(module.dlpi_addr + part.p_vaddr);
    const char* const end = next + part.p_memsz;
    while (next + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, next, sizeof(note));
      auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
      const char* name = next + sizeof(note);
      const char* content = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        return {content, note.n_descsz};
      }
      next = content + padded(note.n_descsz);
    }
  }
  return {};
}

uint64_t build_of(const dl_phdr_info& module) {
  if (const auto note = build_note(module); !note.empty()) return hash_of(note);
  const char* path = module.dlpi_name && *module.dlpi_name ? module.dlpi_name : "/proc/self/exe";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return hash_of(bytes);
}

struct Search {
  uintptr_t address;
  FunctionId id;
  bool found = false;
};

int look_in(dl_phdr_info* module, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const auto& part = module->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t begin = module->dlpi_addr + part.p_vaddr;
    if (search.address < begin || search.address >= begin + part.p_memsz) continue;
    search.id = {build_of(*module), search.address - module->dlpi_addr};
    search.found = true;
    return 1;
  }
  return 0;
}

FunctionId place_of(const Function& function) {
  Search search{reinterpret_cast<uintptr_t>(&function), {}};
  ::dl_iterate_phdr(&look_in, &search);
  TORCH_CHECK(search.found, "[rpc] \"", function.name, "\" lies in no module of this program");
  return search.id;
}

/// Everything that may be called from elsewhere. One for the process, as the functions themselves are.
struct Registry {
  base::Mutex mutex;
  std::map<FunctionId, const Function*> by_id GUARDED_BY(mutex);
  std::map<std::string, const Function*, std::less<>> by_name GUARDED_BY(mutex);
};

Registry& registry() {
  static Registry all;
  return all;
}

/// Where the arguments of a template begin that a name ends with; at its end if there are none.
size_t arguments_at(std::string_view name) {
  if (!name.ends_with('>')) return name.size();
  int depth = 0;
  for (size_t at = name.size(); at-- > 0;) {
    depth += name[at] == '>' ? 1 : name[at] == '<' ? -1 : 0;
    if (depth == 0) return at;
  }
  return name.size();
}

bool register_as(const FunctionId& id, Function& function) {
  function.id = id;
  auto& all = registry();
  base::Lock lock(all.mutex);
  all.by_id[id] = &function;
  return true;
}

}  // namespace

bool register_function(Function& function) { return register_as(place_of(function), function); }

bool register_everywhere(Function& function, uint64_t number) {
  return register_as({0, number}, function);  // A module's hash is never zero, but for one in 2^64.
}

const Function* find_function(const FunctionId& id) {
  auto& all = registry();
  base::Lock lock(all.mutex);
  const auto found = all.by_id.find(id);
  return found == all.by_id.end() ? nullptr : found->second;
}

std::string name_as_written(std::string_view name, std::string_view written) {
  const auto arguments = written.substr(arguments_at(written));
  if (arguments.empty()) return std::string(name);
  return std::string(name.substr(0, arguments_at(name))).append(arguments);
}

bool register_name(std::string_view name, const Function& function) {
  auto& all = registry();
  base::Lock lock(all.mutex);
  all.by_name.emplace(name, &function);
  return true;
}

const Function* find_function(std::string_view name) {
  auto& all = registry();
  base::Lock lock(all.mutex);
  const auto found = all.by_name.find(name);
  return found == all.by_name.end() ? nullptr : found->second;
}

}  // namespace farad::detail
