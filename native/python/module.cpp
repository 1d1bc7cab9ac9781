#include "python/bind.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
    m.doc() = "The virtual machine's hardware: address windows, blocks, copies.  No policy, no texts.";
    nb::set_leak_warnings(false);   // what lives at interpreter exit is the user's program's business
    bind_memory(m);
    bind_export(m);
    bind_dlpack(m);
    bind_mappings(m);
    bind_sharing(m);
    bind_copies(m);
    bind_signals(m);
    bind_streams(m);
    bind_submissions(m);
    bind_channels(m);
    bind_group_log(m);
    bind_collectives(m);
    bind_messages(m);
    bind_group_calls(m);
    bind_ends(m);
    bind_pools(m);
    bind_c_calls(m);
    bind_nccl_calls(m);
    bind_observer(m);
    bind_host_views(m);
    bind_touches(m);
    bind_readiness(m);
    bind_call_sites(m);
    bind_waits(m);
    bind_log(m);
    bind_processes(m);
    bind_files(m);
    bind_far(m);
    bind_device_calls(m);
}
