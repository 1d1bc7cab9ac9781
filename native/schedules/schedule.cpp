#include "schedules/schedule.h"

namespace peerlane {

const CollectiveSchedule& schedule_of(const GroupCall& call, uint32_t ranks) {
#define PEERLANE_ADDRESS_OF_SCHEDULE(name) &name,
    const CollectiveSchedule* const all[] = {PEERLANE_SCHEDULES(PEERLANE_ADDRESS_OF_SCHEDULE)};
#undef PEERLANE_ADDRESS_OF_SCHEDULE
    return **std::find_if(std::begin(all), std::end(all), [&](const CollectiveSchedule* each) { return each->serves(call, ranks); });
}

}  // namespace peerlane
