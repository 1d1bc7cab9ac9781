// The part of UCX that the engine calls, in declarations of our own: no header of UCX is there when peerlane is built.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace peerlane::net::ucx {

// The oldest version that has all of it: 1.13 cannot copy a message's header.
inline constexpr unsigned kMajor = 1, kMinor = 14;

enum class Status : int8_t { ok = 0, in_progress = 1, no_device = -14, rejected = -23, last = -100 };

struct Context;
struct Worker;
struct Endpoint;
struct Config;

// A request, null for what is over already, or a failure.
using Pending = void*;
inline bool has_failed(Pending pending) {
    return reinterpret_cast<uintptr_t>(pending) >= static_cast<uintptr_t>(static_cast<intptr_t>(Status::last));
}

struct ContextParams {
    static constexpr uint64_t kFeatures = 1 << 0;
    static constexpr uint64_t kWakeup = 1 << 4, kMessages = 1 << 6;
    uint64_t field_mask;
    uint64_t features;
    uint64_t others[9];
};
static_assert(sizeof(ContextParams) == 88 && offsetof(ContextParams, features) == 8);

struct WorkerParams {
    static constexpr uint64_t kThreads = 1 << 0;
    static constexpr int kOneAtATime = 1;
    uint64_t field_mask;
    int threads;
    uint64_t others[23];
};
static_assert(sizeof(WorkerParams) == 200 && offsetof(WorkerParams, threads) == 8);

struct EndpointParams {
    static constexpr uint64_t kAddress = 1 << 0, kFailures = 1 << 1, kOnFailure = 1 << 2;
    static constexpr int kPeerFailures = 1;
    uint64_t field_mask;
    const void* address;
    int failures;
    void (*on_failure)(void* argument, Endpoint* endpoint, Status status);
    void* argument;
    uint64_t others[8];
};
static_assert(sizeof(EndpointParams) == 104 && offsetof(EndpointParams, failures) == 16);
static_assert(offsetof(EndpointParams, on_failure) == 24 && offsetof(EndpointParams, argument) == 32);

struct Arrived {
    static constexpr uint64_t kParcel = 1 << 17;
    uint64_t attributes;
    Endpoint* answer;
};
static_assert(sizeof(Arrived) == 16);

struct HandlerParams {
    static constexpr uint64_t kId = 1 << 0, kCall = 1 << 2, kArgument = 1 << 3;
    uint64_t field_mask;
    unsigned id;
    uint32_t flags;
    Status (*call)(void* argument, const void* header, size_t header_size, void* data, size_t size, const Arrived* arrived);
    void* argument;
};
static_assert(sizeof(HandlerParams) == 32 && offsetof(HandlerParams, id) == 8);
static_assert(offsetof(HandlerParams, call) == 16 && offsetof(HandlerParams, argument) == 24);

struct RequestParams {
    static constexpr uint32_t kCall = 1 << 1, kArgument = 1 << 2, kFlags = 1 << 4, kMemory = 1 << 6, kSoonOver = 1 << 17;
    static constexpr uint32_t kEager = 1 << 1, kRendezvous = 1 << 2, kCopyHeader = 1 << 3;   // of a message
    static constexpr uint32_t kForce = 1 << 0;                                               // of closing an endpoint
    static constexpr int kHost = 0;
    uint32_t field_mask;
    uint32_t flags;
    void* request;
    union {
        void (*sent)(void* request, Status status, void* argument);
        void (*received)(void* request, Status status, size_t size, void* argument);
    };
    uint64_t type;
    void* argument;
    void* answer;
    int memory;
    uint64_t others[5];
};
static_assert(sizeof(RequestParams) == 96 && offsetof(RequestParams, flags) == 4 && offsetof(RequestParams, sent) == 16);
static_assert(offsetof(RequestParams, argument) == 32 && offsetof(RequestParams, memory) == 48);

struct Transport {
    const char* name;
    const char* device;
};

struct EndpointAttributes {
    static constexpr uint64_t kTransports = 1 << 3;
    uint64_t asked;
    uint64_t others[36];
    Transport* transports;
    unsigned transport_count;
    size_t transport_size;
    void* data;
};
static_assert(sizeof(EndpointAttributes) == 328 && offsetof(EndpointAttributes, transports) == 296);
static_assert(offsetof(EndpointAttributes, transport_count) == 304 && offsetof(EndpointAttributes, transport_size) == 312);

struct Library {
    std::string path, version;

    void (*get_version)(unsigned* major, unsigned* minor, unsigned* release);
    const char* (*status_string)(Status status);
    Status (*config_read)(const char* prefix, const char* file, Config** config);
    Status (*config_modify)(Config* config, const char* name, const char* value);
    void (*config_release)(Config* config);
    Status (*init_version)(unsigned major, unsigned minor, const ContextParams* params, const Config* config, Context** context);
    void (*cleanup)(Context* context);
    Status (*worker_create)(Context* context, const WorkerParams* params, Worker** worker);
    void (*worker_destroy)(Worker* worker);
    Status (*worker_get_address)(Worker* worker, void** address, size_t* size);
    void (*worker_release_address)(Worker* worker, void* address);
    Status (*worker_get_efd)(Worker* worker, int* fd);
    Status (*worker_arm)(Worker* worker);
    unsigned (*worker_progress)(Worker* worker);
    Status (*worker_set_am_recv_handler)(Worker* worker, const HandlerParams* params);
    Status (*ep_create)(Worker* worker, const EndpointParams* params, Endpoint** endpoint);
    Pending (*ep_flush_nbx)(Endpoint* endpoint, const RequestParams* params);
    Pending (*ep_close_nbx)(Endpoint* endpoint, const RequestParams* params);
    Status (*ep_query)(Endpoint* endpoint, EndpointAttributes* attributes);
    Pending (*am_send_nbx)(Endpoint* endpoint, unsigned id, const void* header, size_t header_size, const void* data, size_t size,
                           const RequestParams* params);
    Pending (*am_recv_data_nbx)(Worker* worker, void* parcel, void* to, size_t size, const RequestParams* params);
    void (*am_data_release)(Worker* worker, void* parcel);
    void (*request_free)(void* request);
};

// What UCX reads from the environment while it is loaded and set up, without what the user has set himself.  It installs no
// signal handlers, patches no malloc and prints nothing.  Other copies of UCX in this process and its children are left alone.
class Settings {
  public:
    Settings();
    ~Settings();
    Settings(const Settings&) = delete;

  private:
    const char* ours_[4] = {};
};

// `path`: that library and no other; empty: the system's.  Throws Unavailable.
Library load(const std::string& path);

}  // namespace peerlane::net::ucx
