/*
 * The machine: one file that all processes of a simulated machine map.
 *
 * Every process that uses CUDA owns one slot: it holds an OFD lock on the slot's byte of the file,
 * which the kernel drops when the process ends in any way. What a slot says counts only while that
 * lock is held, so nothing has to be cleaned up after a death; it is swept up when somebody passes.
 *
 * A card's mutex guards what several processes write. It is robust: if its holder is killed, the
 * next one gets it and recomputes the card's totals from the slots (card_lock).
 */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "common/settings.h"

#define MACHINE_MAGIC 0x43544d4953ull
#define MACHINE_VERSION 4
#define SLOTS 512
#define RUNS 8192
#define GAPS 4096
#define INCIDENTS 256
#define LIMITS 64
#define CGROUP_DEPTH 8

/* A stretch of a card's queue in which one process' work runs; see queue.h for queue time. */
struct run {
    uint64_t start_ns, end_ns;
};

/* What one process has on one card; the card's mutex is held to write it. */
struct share {
    uint64_t used_bytes;
    uint64_t context_count;
    uint64_t queue_end_ns; /* when the last work it queued will end */
    uint64_t busy_ns;      /* duration of all work it ever queued, done or not */
    uint64_t run_count;    /* runs ever begun; the last RUNS of them are kept */
};

/* Stretches of queue time that never happen, because the process that queued them died. */
struct gaps {
    uint64_t total_ns; /* of all gaps ever, also of those that the list has forgotten */
    uint64_t count;
    struct run list[GAPS]; /* in order, apart */
};

/* A limit that nvmlDeviceSetMemoryLimits gave to the processes of a cgroup; free if cgroup is 0. */
struct limit {
    uint64_t cgroup;
    uint64_t soft_bytes, hard_bytes;
};

struct card {
    pthread_mutex_t mutex;
    uint64_t used_bytes;   /* sum of its shares */
    uint64_t queue_end_ns; /* latest of its shares */
    uint64_t gaps_active;  /* which of the two lists is the true one */
    uint32_t lost;         /* fell off the bus */
    uint32_t compute_mode;
    uint32_t persistence;
    uint64_t ecc_errors;   /* that could not be corrected */
    uint64_t ecc_corrected;
    uint32_t reset_needed; /* after an Xid or an error of memory; see health.h */
    uint32_t rows;         /* of memory, that are to be remapped: a set of ROWS_ bits */
    uint32_t limits_used; /* no limit from here on was ever set */
    struct limit limits[LIMITS];
    struct share shares[SLOTS];
    struct gaps gaps[2];
    struct run runs[SLOTS][RUNS];
};

/* A process; its place never moves. Clean (pid 0) before it is given to another one. */
struct slot {
    pid_t pid;                             /* in its own pid namespace; see pids.h */
    uint64_t pid_namespace, started_ticks; /* by which others find it */
    uint64_t cgroups[CGROUP_DEPTH]; /* its cgroup and those around it, by inode */
};

/* Something that NVML tells to those who wait for it; types are those of NVML. */
struct incident {
    uint32_t card, type;
    uint64_t data; /* the code of an Xid error */
};

struct machine {
    uint64_t magic, version, bytes;
    struct facts facts;
    pthread_mutex_t incident_mutex;
    uint64_t incident_count; /* ever raised; the last INCIDENTS of them are kept */
    struct incident incidents[INCIDENTS];
    uint32_t unloaded;   /* NVML answers as if the driver's module was not there */
    uint32_t slots_used; /* no slot from here on was ever used */
    struct slot slots[SLOTS];
    struct card cards[];
};

/* This process' hold on the machine. */
struct attachment {
    struct machine *machine;
    int lock_fd; /* its own open file, never mapped: see attaching.c */
    int slot;    /* -1 for one who only looks */
    uint32_t seen_count, seen[CARDS_MAX]; /* the cards that this process sees, in order */
};

enum attaching {
    ATTACHED,
    ATTACH_SETTINGS_WRONG,
    ATTACH_NO_FILE,
    ATTACH_OTHER_MACHINE,
    ATTACH_FULL,
};

/* Failures are told on stderr, in one line that says what to do. */
enum attaching machine_attach(struct attachment *here, struct settings *settings, bool as_process);

/* The child of a fork is not attached: it lets go of the lock, which stays its parent's. */
void machine_forget(struct attachment *here);

bool slot_alive(const struct attachment *here, unsigned slot);
bool card_seen(const struct attachment *here, uint32_t card);

static inline struct share *own_share(const struct attachment *here, struct card *card)
{
    return &card->shares[here->slot];
}
