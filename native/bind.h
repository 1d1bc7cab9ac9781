#pragma once
#include <nanobind/nanobind.h>

void bind_memory(nanobind::module_& m);
void bind_copies(nanobind::module_& m);
void bind_reference(nanobind::module_& m);
