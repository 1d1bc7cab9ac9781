#include "net/ucx.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

#include "net/engine.h"

namespace peerlane::net::ucx {

namespace {

constexpr char kSystems[] = "libucp.so.0";
constexpr const char* kSettings[][2] = {
    {"UCX_ERROR_SIGNALS", ""}, {"UCX_MEM_EVENTS", "n"}, {"UCX_WARN_UNUSED_ENV_VARS", "n"}, {"UCX_LOG_LEVEL", "fatal"}};

std::filesystem::path file_of(const void* symbol) {
    Dl_info info;
    if (!dladdr(symbol, &info) || !info.dli_fname) return {};
    std::error_code error;
    const auto real = std::filesystem::canonical(info.dli_fname, error);
    return error ? std::filesystem::path(info.dli_fname) : real;
}

class Loading {
  public:
    explicit Loading(const std::string& name) : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (handle_) return;
        std::string why = dlerror();
        if (why.starts_with(name + ": ")) why.erase(0, name.size() + 2);   // `refuse` names it
        refuse(why + hint_of_another());
    }

    template <class Function>
    void find(const char* symbol, Function*& function) {
        function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
        if (!function) missing_ += (missing_.empty() ? "" : ", ") + std::string(symbol);
    }

    void check_complete() const {
        if (!missing_.empty()) refuse("it lacks " + missing_);
    }

    // The loader takes a dependency by its bare name from what the process has loaded before, which may be of another version.
    void check_one_version(const void* of_this, const void* of_part) const {
        const auto mine = file_of(of_this), part = file_of(of_part);
        if (mine.parent_path() == part.parent_path()) return;
        refuse("it would use parts of another UCX" + hint_of_another());
    }

    // Kept, it would lend its parts to the next one that is tried.
    [[noreturn]] void refuse(const std::string& why) const {
        Unavailable refusal{{name_ + ": " + why}};
        if (handle_) dlclose(handle_);
        throw refusal;
    }

  private:
    static std::string hint_of_another() {
        void* const part = dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD);
        if (!part) return {};
        const auto folder = file_of(dlsym(part, "ucs_status_string")).parent_path();
        dlclose(part);
        return "; this process has loaded the UCX of " + folder.string() +
               " before: set PEERLANE_UCX=" + (folder / kSystems).string() + ", or import peerlane first";
    }

    std::string name_, missing_;
    void* handle_;
};

}  // namespace

Settings::Settings() {
    int count = 0;
    for (const auto& [name, value] : kSettings) {
        if (getenv(name)) continue;
        setenv(name, value, 0);
        ours_[count++] = name;
    }
}

Settings::~Settings() {
    for (const char* name : ours_)
        if (name) unsetenv(name);
}

Library load(const std::string& path) {
    Loading loading(path.empty() ? kSystems : path);
    Library library;
    loading.find("ucp_get_version", library.get_version);
    loading.check_complete();
    unsigned major = 0, minor = 0, release = 0;
    library.get_version(&major, &minor, &release);
    library.version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
    if (major != kMajor || minor < kMinor)
        loading.refuse("its version is " + library.version + "; peerlane needs " + std::to_string(kMajor) + "." +
                       std::to_string(kMinor) + " or a later " + std::to_string(kMajor) + ".x");
    loading.find("ucs_status_string", library.status_string);
    loading.find("ucp_config_read", library.config_read);
    loading.find("ucp_config_modify", library.config_modify);
    loading.find("ucp_config_release", library.config_release);
    loading.find("ucp_init_version", library.init_version);
    loading.find("ucp_cleanup", library.cleanup);
    loading.find("ucp_worker_create", library.worker_create);
    loading.find("ucp_worker_destroy", library.worker_destroy);
    loading.find("ucp_worker_get_address", library.worker_get_address);
    loading.find("ucp_worker_release_address", library.worker_release_address);
    loading.find("ucp_worker_get_efd", library.worker_get_efd);
    loading.find("ucp_worker_arm", library.worker_arm);
    loading.find("ucp_worker_progress", library.worker_progress);
    loading.find("ucp_worker_set_am_recv_handler", library.worker_set_am_recv_handler);
    loading.find("ucp_ep_create", library.ep_create);
    loading.find("ucp_ep_flush_nbx", library.ep_flush_nbx);
    loading.find("ucp_ep_close_nbx", library.ep_close_nbx);
    loading.find("ucp_ep_query", library.ep_query);
    loading.find("ucp_am_send_nbx", library.am_send_nbx);
    loading.find("ucp_am_recv_data_nbx", library.am_recv_data_nbx);
    loading.find("ucp_am_data_release", library.am_data_release);
    loading.find("ucp_request_free", library.request_free);
    void (*part_of_transports)() = nullptr;
    loading.find("uct_query_components", part_of_transports);
    loading.check_complete();
    const auto* const of_this = reinterpret_cast<const void*>(library.get_version);
    loading.check_one_version(of_this, reinterpret_cast<const void*>(library.status_string));
    loading.check_one_version(of_this, reinterpret_cast<const void*>(part_of_transports));
    library.path = file_of(of_this).string();
    return library;
}

}  // namespace peerlane::net::ucx
