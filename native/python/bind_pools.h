#pragma once
#include "python/bind.h"
#include "stream/pools.h"

struct PoolsHandle {
    std::shared_ptr<peerlane::Pools> pools = std::make_shared<peerlane::Pools>();
};
struct PoolMemoryHandle {
    std::shared_ptr<peerlane::PoolMemory> memory;
};
struct FreedBeforeHandle {
    std::shared_ptr<peerlane::FreedBefore> before = std::make_shared<peerlane::FreedBefore>();
};
