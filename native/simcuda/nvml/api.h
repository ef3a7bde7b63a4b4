/* NVML's header with every version of every function declared, and all of them exported. */
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop
