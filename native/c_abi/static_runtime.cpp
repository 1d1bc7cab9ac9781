// Replaces the vendor's copies of CUDA's runtime, in a program, in a module or in a library beside it: each function of a copy gets a
// jump to the function of the same name in peerlane's libcudart.so.  The file must have the symbols of a copy that is linked
// statically, so a stripped one stays.  `peerlane run` loads this library before a program of C, and calls it for modules of Python and
// for what ctypes loads.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#define PEERLANE_C extern "C" __attribute__((visibility("default")))

namespace {

constexpr const char* kMark = "cudaGetDeviceCount";                    // each copy of the runtime has it
constexpr const char* kMarkOf12 = "cudaGetDeviceProperties_v2";        // only the version 12
constexpr const char* kMarkOf13 = "cudaGetDriverEntryPointByVersion";  // else only 12.5 and later

#if defined(__x86_64__)
constexpr size_t kJump = 13;
void write_jump(uint8_t* at, uint64_t target) {
    constexpr uint8_t kLoad[] = {0x49, 0xBB}, kGo[] = {0x41, 0xFF, 0xE3};   // movabs r11, target; jmp r11
    std::memcpy(at, kLoad, 2);
    std::memcpy(at + 2, &target, 8);
    std::memcpy(at + 10, kGo, 3);
}
#else
constexpr size_t kJump = 16;
void write_jump(uint8_t* at, uint64_t target) {
    constexpr uint32_t kGo[] = {0x58000050, 0xD61F0200};   // ldr x16, [pc, 8]; br x16
    std::memcpy(at, kGo, 8);
    std::memcpy(at + 8, &target, 8);
    __builtin___clear_cache(reinterpret_cast<char*>(at), reinterpret_cast<char*>(at) + kJump);
}
#endif

// A file in memory; empty if it cannot be read.
class File {
public:
    explicit File(const char* path) {
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        struct stat about;
        if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
            void* const mapped = mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_PRIVATE, file, 0);
            if (mapped != MAP_FAILED) data_ = static_cast<const uint8_t*>(mapped), size_ = static_cast<size_t>(about.st_size);
        }
        if (file >= 0) close(file);
    }
    ~File() {
        if (data_) munmap(const_cast<uint8_t*>(data_), size_);
    }
    File(const File&) = delete;

    // `count` values at an offset; null where the file has fewer.
    template <class T>
    const T* at(uint64_t offset, uint64_t count = 1) const {
        if (offset > size_ || count > (size_ - offset) / sizeof(T) || offset % alignof(T)) return nullptr;
        return reinterpret_cast<const T*>(data_ + offset);
    }

private:
    const uint8_t* data_ = nullptr;
    size_t size_ = 0;
};

struct Symbols {
    const Elf64_Sym* first = nullptr;
    uint64_t count = 0;
    const char* names = nullptr;
    uint64_t names_size = 0;

    const char* name(const Elf64_Sym& symbol) const { return symbol.st_name < names_size ? names + symbol.st_name : ""; }

    // Whether a name is among all of them, also as the end of a longer one: to look at each symbol takes longer.
    bool names_any(const char* wanted) const { return memmem(names, names_size, wanted, std::strlen(wanted) + 1) != nullptr; }

    bool has(const char* wanted) const {
        for (uint64_t i = 0; i < count; ++i)
            if (ELF64_ST_TYPE(first[i].st_info) == STT_FUNC && first[i].st_shndx != SHN_UNDEF && !std::strcmp(name(first[i]), wanted)) return true;
        return false;
    }
};

// The symbols of a table: those for the linker, or those for the loader.
Symbols symbols_of(const File& file, uint32_t kind) {
    const auto* const header = file.at<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64) return {};
    const auto* const sections = file.at<Elf64_Shdr>(header->e_shoff, header->e_shnum);
    for (unsigned i = 0; sections && i < header->e_shnum; ++i) {
        const Elf64_Shdr& table = sections[i];
        if (table.sh_type != kind || table.sh_link >= header->e_shnum) continue;
        const Elf64_Shdr& texts = sections[table.sh_link];
        const uint64_t count = table.sh_size / sizeof(Elf64_Sym);
        const auto* const first = file.at<Elf64_Sym>(table.sh_offset, count);
        const auto* const names = file.at<char>(texts.sh_offset, texts.sh_size);
        if (first && names && texts.sh_size && !names[texts.sh_size - 1]) return {first, count, names, texts.sh_size};
    }
    return {};
}

// Let the pages of a range be written and run, or run alone again.
bool protect(uint8_t* at, size_t size, int rights) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t first = reinterpret_cast<uintptr_t>(at) / page * page;
    return mprotect(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(at) + size - first, rights) == 0;
}

using Open = void* (*)(const char*, int);

Open next_open() {
    static std::atomic<Open> known{nullptr};
    Open open = known.load(std::memory_order_relaxed);
    if (!open) {
        open = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
        known.store(open, std::memory_order_relaxed);
    }
    return open;
}

// The runtime of peerlane that has the same structs as a copy, by its own path: another may be loaded by that name.  Null for a
// version that peerlane does not have.
void* runtime_of(const Symbols& symbols, const char* path) {
    const char* const name = symbols.has(kMarkOf12) ? "libcudart.so.12" : symbols.has(kMarkOf13) ? "libcudart.so.13" : nullptr;
    Dl_info own;
    if (!name) std::fprintf(stderr, "peerlane: %s has a runtime of CUDA older than 12, which peerlane does not replace: build it with 12 or 13\n", path);
    if (!name || !dladdr(reinterpret_cast<void*>(&symbols_of), &own) || !own.dli_fname) return nullptr;
    const std::string folder(own.dli_fname, std::string_view(own.dli_fname).rfind('/') + 1);
    return next_open()((folder + "../" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

int replace(const char* path, uint64_t base) {
    const File file(path);
    Symbols symbols = symbols_of(file, SHT_SYMTAB);
    if (!symbols.names_any(kMark) || !symbols.has(kMark)) symbols = symbols_of(file, SHT_DYNSYM);
    if (!symbols.names_any(kMark) || !symbols.has(kMark)) return 0;
    if (symbols.has("peerlane_cudaGetDeviceCount")) return 0;   // peerlane's own
    void* const library = runtime_of(symbols, path);
    if (!library) return 0;
    int replaced = 0;
    for (uint64_t i = 0; i < symbols.count; ++i) {
        const Elf64_Sym& symbol = symbols.first[i];
        const char* const name = symbols.name(symbol);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || symbol.st_size < kJump) continue;
        if (std::strncmp(name, "cuda", 4) && std::strncmp(name, "__cuda", 6)) continue;
        void* const target = dlsym(library, name);
        auto* const code = reinterpret_cast<uint8_t*>(base + symbol.st_value);
        if (!target || target == code || !protect(code, kJump, PROT_READ | PROT_WRITE | PROT_EXEC)) continue;
        write_jump(code, reinterpret_cast<uint64_t>(target));
        protect(code, kJump, PROT_READ | PROT_EXEC);
        ++replaced;
    }
    (void)dlerror();   // of functions that peerlane lacks; the program may ask after its own dlopen
    return replaced;
}

// The objects that are loaded: the file of each, and where it is; and how many were loaded so far.
struct Objects {
    std::vector<std::pair<std::string, uint64_t>> each;
    unsigned long long loaded = 0;
};

int note(dl_phdr_info* object, size_t, void* data) {
    auto* const objects = static_cast<Objects*>(data);
    const bool is_program = objects->each.empty();
    objects->loaded = object->dlpi_adds;
    if (is_program || std::strchr(object->dlpi_name, '/'))   // the system's own object has no file
        objects->each.emplace_back(is_program ? "/proc/self/exe" : object->dlpi_name, object->dlpi_addr);
    return 0;
}

// The objects that were looked at.  It stays: destructors of the program may load libraries.  Nobody waits for the lock, which a forked
// child may inherit from a thread that it does not have: an object is examined once more instead.
struct Examined {
    using Object = std::pair<std::string, uint64_t>;

    bool has(const Object& object) {
        const std::unique_lock lock(mutex, std::try_to_lock);
        return lock.owns_lock() && each.count(object) != 0;
    }
    void add(const Object& object) {
        const std::unique_lock lock(mutex, std::try_to_lock);
        if (lock.owns_lock()) each.insert(object);
    }

    std::mutex mutex;
    std::set<Object> each;
    std::atomic<unsigned long long> loaded{0};
};

Examined& examined() {
    static auto& all = *new Examined;
    return all;
}

// Replace each copy in the objects that were loaded since the last time; `is_known`: they have none.  No lock is held while the loader
// is called: a constructor that it runs may come here in another thread.  Two threads that replace the same function write the same,
// and so an object counts as examined only when that is done.
int replace_all(bool is_known = false) {
    Objects objects;
    dl_iterate_phdr(note, &objects);
    Examined& all = examined();
    if (objects.loaded == all.loaded.load(std::memory_order_acquire)) return 0;
    int replaced = 0;
    for (const auto& object : objects.each) {
        if (all.has(object)) continue;
        if (!is_known) replaced += replace(object.first.c_str(), object.second);
        all.add(object);
    }
    all.loaded.store(objects.loaded, std::memory_order_release);
    return replaced;
}

// In a program of C, and in a child, it is loaded before all others.  In the first process of Python it comes later: the import hook has
// examined what is there.
__attribute__((constructor)) void on_load() {
    const bool is_first = dlsym(RTLD_DEFAULT, "dlopen") == reinterpret_cast<void*>(&dlopen);
    replace_all(!is_first);
}

// The file that the loader takes for a name without a slash which code at an address opens; empty: it is loaded, or in the loader's cache.
std::string file_of(const char* name, void* caller) {
    Dl_info of_caller{};
    link_map* object = nullptr;
    if (!dladdr1(caller, &of_caller, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) || !object) return {};
    if (void* const loaded = next_open()(name, RTLD_LAZY | RTLD_NOLOAD)) {
        dlclose(loaded);
        return {};
    }
    void* const handle = next_open()(object->l_name[0] ? object->l_name : nullptr, RTLD_LAZY | RTLD_NOLOAD);
    Dl_serinfo size{};
    std::string file;
    if (handle && dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) == 0) {
        std::vector<std::byte> room(size.dls_size);
        auto* const paths = reinterpret_cast<Dl_serinfo*>(room.data());
        const bool are_known = dlinfo(handle, RTLD_DI_SERINFOSIZE, paths) == 0 && dlinfo(handle, RTLD_DI_SERINFO, paths) == 0;
        for (unsigned i = 0; are_known && file.empty() && i < paths->dls_cnt; ++i)
            if (std::string each = std::string(paths->dls_serpath[i].dls_name) + '/' + name; access(each.c_str(), R_OK) == 0) file = std::move(each);
    }
    if (handle) dlclose(handle);
    (void)dlerror();   // of questions that the program did not ask
    return file;
}

void* open_and_replace(const char* path, int mode) {
    void* const opened = next_open()(path, mode);
    if (opened) replace_all();
    return opened;
}

// Null: the loader must be asked as the caller does.
[[gnu::noinline]] void* open_known(const char* name, int mode, void* caller) {
    const std::string file = file_of(name, caller);
    return file.empty() ? nullptr : open_and_replace(file.c_str(), mode);
}

}  // namespace

// Before all others: replace the runtime in what the program opens, and what that needs.  The loader looks for a name without a slash in
// folders of the caller, which it knows by the return address.  So such a call goes on as a jump, unless the file is known.
PEERLANE_C void* dlopen(const char* path, int mode) {
    if (!path || std::strchr(path, '$')) return next_open()(path, mode);
    if (std::strchr(path, '/')) return open_and_replace(path, mode);
    void* const opened = open_known(path, mode, __builtin_return_address(0));
    return opened ? opened : next_open()(path, mode);
}

// Open a library or a module as Python will at once, and replace the runtime in what that loads; return how many functions were replaced.
PEERLANE_C int peerlane_replace_runtime(const char* path, int mode) {
    (void)next_open()(path, mode);   // if it fails, so will Python
    (void)dlerror();
    return replace_all();
}
