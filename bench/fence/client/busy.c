/* A tenant with endless work: `busy GRID MILLISECONDS IN_FLIGHT`.
 *
 * Launches kernels one after another and lets IN_FLIGHT of them be under way, as a program does
 * that is limited by its card. An event after each tells when it ended, by the card's own clock;
 * its zero is an event on the idle card, whose time by the host is taken beside it. */
#include "client.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_FLIGHT_MAX = 1024 };

struct ends {
    uint64_t *ns; /* since the zero */
    size_t count, room;
};

static CUevent zero, flying[IN_FLIGHT_MAX];

static bool has_room(struct ends *ends)
{
    if (ends->count == ends->room) {
        ends->room = ends->room ? 2 * ends->room : 4096;
        ends->ns = realloc(ends->ns, ends->room * sizeof *ends->ns);
    }
    return ends->ns;
}

static void note_end(struct ends *ends, CUevent event)
{
    float since_ms;
    CHECK(cuEventSynchronize(event));
    CHECK(cuEventElapsedTime(&since_ms, zero, event));
    if (!has_room(ends))
        exit(1);
    ends->ns[ends->count++] = (uint64_t)((double)since_ms * 1e6);
}

/* Returns how many were launched, the last IN_FLIGHT of which are not yet noted. */
static uint64_t launch_until(uint64_t deadline_ns, CUfunction spin, unsigned grid,
                             uint64_t in_flight, struct ends *ends)
{
    uint64_t launched = 0;
    for (; now_ns() < deadline_ns; launched++) {
        CUevent event = flying[launched % in_flight];
        if (launched >= in_flight)
            note_end(ends, event);
        CHECK(cuLaunchKernel(spin, grid, 1, 1, 128, 1, 1, 0, 0, 0, 0));
        CHECK(cuEventRecord(event, 0));
    }
    return launched;
}

static void drain(uint64_t launched, uint64_t in_flight, struct ends *ends)
{
    for (uint64_t i = launched > in_flight ? launched - in_flight : 0; i < launched; i++)
        note_end(ends, flying[i % in_flight]);
}

static void tell(uint64_t began_ns, const struct ends *ends)
{
    printf("{\"began_ns\": %llu, \"ended_ns\": [", (unsigned long long)began_ns);
    for (size_t i = 0; i < ends->count; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)(began_ns + ends->ns[i]));
    puts("]}");
}

int keep_busy(char **arguments)
{
    unsigned grid = (unsigned)number(arguments[0]);
    uint64_t length_ns = number(arguments[1]) * 1000000, in_flight = number(arguments[2]);
    struct ends ends = {0};
    if (!in_flight || in_flight > IN_FLIGHT_MAX)
        return 1;
    CUfunction spin = open_card();
    CHECK(cuEventCreate(&zero, CU_EVENT_DEFAULT));
    for (uint64_t i = 0; i < in_flight; i++)
        CHECK(cuEventCreate(&flying[i], CU_EVENT_DEFAULT));
    if (!ready_for_turn())
        return 0;
    CHECK(cuEventRecord(zero, 0));
    uint64_t began_ns = now_ns();
    uint64_t launched = launch_until(began_ns + length_ns, spin, grid, in_flight, &ends);
    drain(launched, in_flight, &ends);
    tell(began_ns, &ends);
    free(ends.ns);
    return 0;
}
