/* Files in memory alone, for memory that is mapped more than once or by several processes. */
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_memfd_create
#error "the headers of this kernel are older than Linux 3.17"
#endif

/* By its number: Linux has it since 3.17, the C library of 2.17 does not name it. */
static inline int memory_file(const char *name)
{
    const unsigned close_on_exec = 1;
    return (int)syscall(SYS_memfd_create, name, close_on_exec);
}
