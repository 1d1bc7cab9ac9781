// What the bindings of channels to other machines have in common with those of all channels.
#pragma once
#include "net/far.h"
#include "python/bind.h"

struct FarHandle {
    peerlane::net::FarChannelPtr channel;
    explicit FarHandle(peerlane::net::FarChannelPtr channel) : channel(std::move(channel)) {}
    ~FarHandle() {
        if (!peerlane::Heap::get().is_forked()) channel->close();
    }
    FarHandle(const FarHandle&) = delete;
};

// `notify`: its number plus 1, or 0.
void write_far(const FarHandle& end, const StreamHandle* stream, uint32_t memory, uint64_t at, nanobind::handle src, uint32_t notify);
// The same without a stream, of few bytes of the host, which are copied; false: they cannot be read, and nothing has happened.  Throws
// Refusal where write_far() does.
bool write_far_copied(const FarHandle& end, uint32_t memory, uint64_t at, const char* src, uint64_t size, uint32_t notify);
void notify_far(const FarHandle& end, const StreamHandle* stream, uint32_t index);
