#include "log/imports.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace peerlane::log {

namespace {

#ifdef __aarch64__
bool is_address(uint64_t type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64; }
#else
bool is_address(uint64_t type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_X86_64_64; }
#endif

bool is_within(const Ranges& ranges, uintptr_t at) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const auto& each) { return each.first <= at && at < each.second; });
}

bool is_of_system(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    for (const std::string_view each : {"libc.so", "libc-", "ld-linux", "libpthread", "libdl.", "librt.", "linux-vdso", "libasan", "libtsan", "libubsan", "libgcc_s"})
        if (name.starts_with(each)) return true;
    return false;
}

}  // namespace

Ranges system_ranges() {
    Ranges ranges;
    ::dl_iterate_phdr(
        [](dl_phdr_info* module, size_t, void* ranges) {
            if (module->dlpi_name && is_of_system(module->dlpi_name))
                for (int i = 0; i < module->dlpi_phnum; ++i)
                    if (const auto& part = module->dlpi_phdr[i]; part.p_type == PT_LOAD)
                        static_cast<Ranges*>(ranges)->emplace_back(module->dlpi_addr + part.p_vaddr, module->dlpi_addr + part.p_vaddr + part.p_memsz);
            return 0;
        },
        &ranges);
    return ranges;
}

bool is_left_alone(std::string_view path) {
    if (is_of_system(path) || path.substr(path.rfind('/') + 1).starts_with("libpeerlane")) return true;
    return path.find("/peerlane/") != path.npos && (path.find("/peerlane/_") != path.npos || path.find("/peerlane/lib/") != path.npos);
}

void hook_imports(const dl_phdr_info& module, const Ranges& system, const std::function<void*(std::string_view)>& hook_of) {
    const ElfW(Dyn)* entry = nullptr;
    Ranges read_only, code;
    for (int i = 0; i < module.dlpi_phnum; ++i) {
        const auto& part = module.dlpi_phdr[i];
        const uintptr_t begin = module.dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_DYNAMIC) entry = reinterpret_cast<const ElfW(Dyn)*>(begin);
        if (part.p_type == PT_GNU_RELRO) read_only.emplace_back(begin, begin + part.p_memsz);
        if (part.p_type == PT_LOAD && !(part.p_flags & PF_W)) code.emplace_back(begin, begin + part.p_memsz);
    }
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    uintptr_t tables[2] = {0, 0};
    size_t sizes[2] = {0, 0};
    for (; entry && entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_JMPREL) tables[0] = entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) sizes[0] = entry->d_un.d_val;
        if (entry->d_tag == DT_RELA) tables[1] = entry->d_un.d_ptr;
        if (entry->d_tag == DT_RELASZ) sizes[1] = entry->d_un.d_val;
    }
    if (!symbols || !names) return;
    const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int table = 0; table < 2; ++table) {
        const auto* const all = reinterpret_cast<const ElfW(Rela)*>(tables[table]);
        for (size_t i = 0; all && i < sizes[table] / sizeof *all; ++i) {
            if (!is_address(ELF64_R_TYPE(all[i].r_info))) continue;
            const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(all[i].r_info)];
            if (symbol.st_shndx != SHN_UNDEF || all[i].r_addend != 0) continue;
            void* const hook = hook_of(names + symbol.st_name);
            if (!hook) continue;
            const uintptr_t at = module.dlpi_addr + all[i].r_offset, begin = at / page * page;
            // Other threads run code, and what another library defines under such a name is no call of the system's.
            auto& slot = *reinterpret_cast<void**>(at);
            const auto target = reinterpret_cast<uintptr_t>(std::atomic_ref(slot).load(std::memory_order_relaxed));
            if (is_within(code, at) || !(is_within(system, target) || is_within(code, target))) continue;
            const bool is_read_only = is_within(read_only, at);
            if (is_read_only && ::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_WRITE) != 0) continue;
            std::atomic_ref(slot).store(hook, std::memory_order_relaxed);
            if (is_read_only) ::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ);
        }
    }
}

}  // namespace peerlane::log
