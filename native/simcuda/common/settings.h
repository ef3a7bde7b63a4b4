/* What a process is told about its machine, by environment and configuration file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CARDS_MAX 32
#define NAME_BYTES 64
#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* Facts are compared with memcmp between processes: no pointers, and unused bytes are zero. */
struct card_facts {
    char name[NAME_BYTES];
    uint8_t uuid[16];
    uint64_t memory_bytes;
    uint32_t sm_count;
    uint32_t capability; /* 80 is compute capability 8.0 */
};

/* What all processes on a machine must agree upon. */
struct facts {
    char driver[32];
    uint32_t cuda_version; /* 13040 is CUDA 13.4 */
    uint32_t memory_limits; /* does the driver know limits per cgroup? */
    uint32_t card_count;
    uint32_t unused;
    struct card_facts cards[CARDS_MAX];
};

struct settings {
    struct facts facts;
    bool facts_given; /* else the machine is taken as it is found */
    uint64_t context_bytes;
    uint64_t pool_step_bytes;
    uint64_t kernel_ns;
    struct duration *durations; /* of kernels by name, from the file */
    char *path;                 /* of the state file */
    char *nodes;                /* the folder of device nodes; empty: all cards are seen */
};

/* Returns NULL, or one sentence that says what is wrong; the sentence is not freed. */
const char *settings_read(struct settings *settings);
void settings_free(struct settings *settings);

uint64_t settings_kernel_ns(const struct settings *settings, const char *kernel);
bool parse_bytes(const char *text, uint64_t *bytes);
bool parse_uuid(const char *text, uint8_t uuid[16]);
void print_uuid(const uint8_t uuid[16], char text[41]);
