#include "schedules/schedule.h"

namespace peerlane {

const CollectiveSchedule& schedule_of(const GroupCall& call, uint32_t ranks) {
    for (const CollectiveSchedule* const each : {&two_shot, &one_shot})
        if (each->serves(call, ranks)) return *each;
    return exchange;
}

}  // namespace peerlane
