#include "bind.h"

NB_MODULE(_core, m) {
    m.doc() = "The virtual machine's hardware: address windows, blocks, copies.  No policy, no texts.";
    bind_memory(m);
    bind_copies(m);
    bind_reference(m);
}
