// Functions that loaded modules import, replaced in their import tables.
#pragma once
#include <link.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace peerlane::log {

using Ranges = std::vector<std::pair<uintptr_t, uintptr_t>>;

// Where the modules of the system lie.
Ranges system_ranges();

// Modules of the system are not hooked for what they do among themselves, and peerlane's know what they do.
bool is_left_alone(std::string_view path);

// Replace the imports of a module that have a hook; null: it has none.  `system`: where what it may import lies, if it is resolved already.
void hook_imports(const dl_phdr_info& module, const Ranges& system, const std::function<void*(std::string_view)>& hook_of);

}  // namespace peerlane::log
