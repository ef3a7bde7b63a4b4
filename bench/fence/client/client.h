/* The client of `make bench-fence`: a plain CUDA program, bound to the driver by the linker as most
 * are. It does not know whether it is fenced. */
#pragma once

#include <cuda.h>
#include <stdint.h>

#define NS_PER_S 1000000000ull

/* Ends the program with a line on stderr if the driver refused. */
void check(CUresult result, const char *call);
#define CHECK(call) check(call, #call)

uint64_t now_ns(void);

/* Init, the primary context of the first card, and a kernel called "spin" that takes no arguments. */
CUfunction open_card(void);

/* Tells that all is prepared, and waits for a line on stdin; 0: there are no more. */
int ready_for_turn(void);

uint64_t number(const char *text);

/* The commands; each gets what follows its name. */
int time_calls(char **arguments);
int keep_busy(char **arguments);
int start_programs(char **arguments);
int watch_machine(char **arguments);
