// How long the test programs wait for what another rank, or the host, does.
#pragma once
#include <stdint.h>

constexpr uint32_t kSeconds = 60;
