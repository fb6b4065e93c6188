#pragma once

// What the file that this code was loaded from tells of the kernels in it.

#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace simt {

// A kernel that breaks a rule, with where and how.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Span {
  unsigned char* data;
  size_t bytes;
};

// Sixteen bits that are a NaN in every format however often they are repeated (in double precision a
// signalling one), and as an integer an index far out of bounds.
inline constexpr uint16_t kPoison = 0x7ff4;

__attribute__((no_sanitize("address"))) inline void poison(const Span& span) {
  for (size_t i = 0; i < span.bytes; ++i) span.data[i] = static_cast<unsigned char>(kPoison >> (i % 2 * 8));
}

// The symbol table of the file that this code was loaded from. It tells the names of kernels, and where their
// static shared variables are: a macro before a declaration cannot learn the address, and compilers do not
// put variables of templates into a section of ours.
struct Symbols {
  std::map<const void*, std::string> functions;
  std::map<std::string, Span> variables;

  Symbols() {
    Dl_info here{};
    dladdr(reinterpret_cast<void*>(&poison), &here);
    std::ifstream file(here.dli_fname, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto* const elf = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
    const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + elf->e_shoff);
    for (int s = 0; s < elf->e_shnum; ++s) {
      if (sections[s].sh_type != SHT_SYMTAB) continue;
      const char* const names = bytes.data() + sections[sections[s].sh_link].sh_offset;
      const auto* const symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[s].sh_offset);
      for (size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i) {
        const Elf64_Sym& symbol = symbols[i];
        auto* const address = static_cast<unsigned char*>(here.dli_fbase) + symbol.st_value;
        const auto type = ELF64_ST_TYPE(symbol.st_info);
        // Without initial value, as shared variables are; the constants of a kernel have one.
        const bool blank = symbol.st_shndx < elf->e_shnum && sections[symbol.st_shndx].sh_type == SHT_NOBITS;
        if (type == STT_FUNC) functions[address] = names + symbol.st_name;
        if (type == STT_OBJECT && blank) variables[names + symbol.st_name] = {address, symbol.st_size};
      }
    }
  }

  // Mangled; a kernel is of internal linkage, which its name tells with an L that nvcc's does not have.
  const std::string& name(const void* kernel) const {
    const auto at = functions.find(kernel);
    if (at == functions.end()) throw Error("simt: a kernel without a symbol; link without -s");
    return at->second;
  }

  std::vector<Span> shared(const std::string& kernel) const {
    const std::string prefix = "_ZZ" + kernel.substr(2) + "E";
    std::vector<Span> spans;
    for (auto at = variables.lower_bound(prefix); at != variables.end() && at->first.starts_with(prefix);
         ++at) {
      spans.push_back(at->second);
    }
    return spans;
  }
};

}  // namespace simt
