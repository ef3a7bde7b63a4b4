/* The tenant's files: found, checked and mapped at the first call that needs them.
 *
 * The limits are believed only where the tenant cannot have written them: at a fixed path that an
 * administrator or a container's mounts provide, or at the path that PARTAGE_LIMITS names, which
 * is as good as the preload that came with it. Whatever goes wrong is remembered as text, which
 * cuGetErrorString gives to people; and one line on stderr, since most programs have texts of their
 * own. */
#define _GNU_SOURCE
#include "firsts.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#define FIXED_PATH "/etc/partage/fence/limits"
#define TOLD "PARTAGE_TOLD_CLOSED"
enum { PATH_BYTES = 1024, REASON_BYTES = 1400 };

static const uint32_t gate_shut = 1, gate_wide = 0;

int fence_current = FENCE_UNKNOWN;
const struct partage_limits *fence_limits;
struct partage_region *fence_region;
struct partage_seat *fence_seats[PARTAGE_CARDS];
const struct partage_group_limits *fence_group_limits;
struct partage_group_region *fence_group_region;
const uint32_t *fence_gate = &gate_shut;

static int attaching; /* see firsts.h */
static char folder[PATH_BYTES];
static bool fixed; /* the folder is the one at the fixed path */
static struct stat region_file;
static char reason[REASON_BYTES];
static int broken = FENCE_CLOSED;

const char *fence_reason(void) { return reason; }

/* Before the driver was found there is nothing that could be called, even if all may pass. */
static void stand_broken(void)
{
    bool open = broken == FENCE_OPEN;
    __atomic_store_n(&fence_gate, open ? &gate_wide : &gate_shut, __ATOMIC_RELEASE);
    __atomic_store_n(&fence_current, broken, __ATOMIC_RELEASE);
}

/* Closed unless the limits themselves say that this tenant may run unfenced. */
void fence_break(const char *what, const char *path)
{
    bool open = fence_limits && fence_limits->on_failure == PARTAGE_ON_FAILURE_OPEN;
    snprintf(reason, sizeof reason, "Partage: %s %s", path, what);
    broken = open ? FENCE_OPEN : FENCE_CLOSED;
    if (__atomic_load_n(&fence_current, __ATOMIC_RELAXED) == FENCE_HELD)
        stand_broken();
}

/* Launches have to be looked at even without a limit on time, for now. */
void fence_watch_launches(bool watch)
{
    if (__atomic_load_n(&fence_current, __ATOMIC_RELAXED) != FENCE_HELD)
        return;
    __atomic_store_n(&fence_gate, watch ? &gate_shut : &fence_limits->gate, __ATOMIC_RELEASE);
    if (__atomic_load_n(&fence_current, __ATOMIC_RELAXED) != FENCE_HELD)
        stand_broken(); /* it broke meanwhile */
}

/* From here on the program can neither unmap it nor map something else in its place. Linux 6.10 has
 * that; where it is not there or not allowed, the watch of the node is what is left. */
void fence_seal(const void *start, size_t bytes) { syscall(SYS_mseal, start, bytes, 0ul); }

/* The whole file, or NULL with the reason set. */
static void *map(int file, const char *path, size_t size, uint64_t magic, int protection)
{
    struct stat about;
    if (fstat(file, &about) || !S_ISREG(about.st_mode) || about.st_size < 16)
        return fence_break("is not a file of the fence", path), NULL;
    void *mapped = mmap(NULL, about.st_size, protection, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        return fence_break("cannot be mapped", path), NULL;
    const struct partage_limits *header = mapped; /* all files begin alike */
    if (header->magic != magic)
        fence_break("is not the file that its name says", path);
    else if (header->version != PARTAGE_VERSION || header->size != size ||
             (size_t)about.st_size != size)
        fence_break("is of another version of Partage than this library", path);
    else
        return mapped;
    munmap(mapped, about.st_size);
    return NULL;
}

static bool trusted(int file)
{
    struct stat about;
    if (fstat(file, &about) || about.st_mode & (S_IWGRP | S_IWOTH))
        return false;
    return about.st_uid == 0 || (!fixed && about.st_uid == geteuid());
}

/* What the node side wrote, or NULL with the reason set. */
static const void *map_trusted(int file, const char *path, size_t size, uint64_t magic)
{
    const void *mapped = NULL;
    if (file < 0)
        return fence_break("cannot be read", path), NULL;
    if (!trusted(file))
        fence_break("could have been written by somebody else than root or its owner", path);
    else if ((mapped = map(file, path, size, magic, PROT_READ)))
        fence_seal(mapped, size);
    close(file);
    return mapped;
}

static bool attach_limits(int file, const char *path)
{
    fence_limits = map_trusted(file, path, sizeof *fence_limits, PARTAGE_LIMITS_MAGIC);
    if (fence_limits && fence_limits->cards > PARTAGE_CARDS) {
        fence_break("names more cards than there can be", path);
        fence_limits = NULL;
    }
    return fence_limits;
}

static const char *named_path(void)
{
    const char *path = getenv("PARTAGE_LIMITS");
    if (!path || strlen(path) >= sizeof folder)
        return fence_break("is not set to the tenant's limits", "PARTAGE_LIMITS"), NULL;
    if (*path != '/')
        return fence_break("is no absolute path", path), NULL;
    return path;
}

static int open_limits(const char *path) { return open(path, O_RDONLY | O_CLOEXEC); }

/* Opened at once, as a loader opens its files: to ask first whether the file is there is a question
 * that a program can have refused (seccomp), and go on. Only a file that is not there lets others
 * be named. */
static bool find_limits(void)
{
    const char *path = FIXED_PATH;
    int file = open_limits(path);
    fixed = file >= 0 || (errno != ENOENT && errno != ENOTDIR);
    if (!fixed && !(path = named_path()))
        return false;
    strcpy(folder, path);
    *strrchr(folder, '/') = '\0';
    return attach_limits(fixed ? file : open_limits(path), path);
}

static int open_beside(const char *name, int flags, char path[PATH_BYTES + 24])
{
    snprintf(path, PATH_BYTES + 24, "%s/%s", folder, name);
    return open(path, flags | O_CLOEXEC);
}

/* The file that is mapped, and not another one that was put in its place. */
bool fence_is_region(int file)
{
    struct stat about;
    return !fstat(file, &about) && about.st_ino == region_file.st_ino &&
           about.st_dev == region_file.st_dev;
}

int fence_open_region(void)
{
    char path[PATH_BYTES + 24];
    int file = open_beside("region", O_RDWR, path);
    if (file < 0 || fence_is_region(file))
        return file;
    close(file);
    errno = ESTALE;
    return -1;
}

int fence_open_mark(const char *name)
{
    char path[PATH_BYTES + 40];
    snprintf(path, sizeof path, "%s/region", folder);
    if (!*folder || access(path, F_OK))
        return -1; /* no tenant's folder, or none any more */
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static void *map_written(const char *name, size_t size, uint64_t magic, struct stat *about)
{
    char path[PATH_BYTES + 24];
    int file = open_beside(name, O_RDWR, path);
    if (file < 0)
        return fence_break("cannot be opened for writing", path), NULL;
    void *mapped = map(file, path, size, magic, PROT_READ | PROT_WRITE);
    fstat(file, about);
    close(file);
    return mapped;
}

static bool attach_region(void)
{
    fence_region = map_written("region", sizeof *fence_region, PARTAGE_REGION_MAGIC, &region_file);
    return fence_region;
}

/* Where nothing is mounted over it, the file at the fixed path is empty: there is no group. */
static bool is_empty(int file)
{
    struct stat about;
    return !fstat(file, &about) && !about.st_size;
}

/* A process that has no group is held to what its tenant has. */
static bool attach_group(void)
{
    struct stat about;
    char path[PATH_BYTES + 24];
    int file = open_beside("group-limits", O_RDONLY, path);
    if (file < 0 && errno == ENOENT)
        return true;
    if (file >= 0 && is_empty(file))
        return close(file), true;
    const struct partage_group_limits *limits =
        map_trusted(file, path, sizeof *limits, PARTAGE_GROUP_LIMITS_MAGIC);
    fence_group_region = limits ? map_written("group-region", sizeof *fence_group_region,
                                              PARTAGE_GROUP_REGION_MAGIC, &about)
                                : NULL;
    fence_group_limits = fence_group_region ? limits : NULL;
    return fence_group_limits;
}

int fence_open_seat(int card, unsigned number, int flags)
{
    char path[PATH_BYTES + 40];
    snprintf(path, sizeof path, "%s/seats-%d/%u", folder, card, number);
    return open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
}

static struct partage_seat *own_seat(int file)
{
    struct stat about;
    if (fstat(file, &about) || (size_t)about.st_size != sizeof(struct partage_seat))
        return NULL;
    void *mapped = mmap(NULL, sizeof(struct partage_seat), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct partage_seat *seat = mapped == MAP_FAILED ? NULL : mapped;
    bool known = seat && seat->magic == PARTAGE_SEAT_MAGIC && seat->version == PARTAGE_VERSION;
    return known ? seat : NULL;
}

/* Without a seat the neighbours cannot be seen; the share itself is kept all the same. */
static void attach_seats(void)
{
    for (unsigned card = 0; card < fence_limits->cards; card++) {
        int file = fence_open_seat((int)card, fence_limits->card[card].seat, O_RDWR);
        if (file >= 0) {
            fence_seats[card] = own_seat(file);
            close(file);
        }
    }
}

static void forked(void)
{
    slots_forked();
    ledger_forget();
    pools_forked();
    contexts_forked();
    physical_forked();
    exports_forked();
    libraries_forked();
    costs_forked();
    neighbours_forked();
}

static bool attach_files(void)
{
    static bool tried, attached;
    if (!tried && find_limits() && attach_region() && attach_group()) {
        attach_seats();
        pthread_atfork(NULL, NULL, forked);
        attached = true;
    }
    tried = true;
    return attached;
}

bool fence_attach_files(void)
{
    struct calm calm = calm_begin();
    first_lock(&attaching);
    bool attached = attach_files();
    first_unlock(&attaching);
    calm_end(calm);
    return attached;
}

static void tell(void)
{
    static bool told;
    char text[REASON_BYTES + 300];
    if (__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text,
             "%s, so CUDA gives this program nothing. Start it again, with `partage run` or in a new"
             " container; `partage doctor` examines the machine.",
             fence_reason());
    say_once(TOLD, text);
}

CUresult fence_refusal(int state)
{
    if (state == FENCE_CLOSED)
        tell();
    return state == FENCE_NO_DRIVER ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_NOT_PERMITTED;
}

int fence_attach(void)
{
    if (!driver_load(NULL))
        return FENCE_NO_DRIVER; /* not remembered: it may be opened later */
    struct calm calm = calm_begin();
    first_lock(&attaching);
    if (fence_current == FENCE_UNKNOWN && attach_files()) {
        __atomic_store_n(&fence_gate, &fence_limits->gate, __ATOMIC_RELEASE);
        __atomic_store_n(&fence_current, FENCE_HELD, __ATOMIC_RELEASE);
    } else if (fence_current == FENCE_UNKNOWN) {
        stand_broken();
    }
    first_unlock(&attaching);
    calm_end(calm);
    return fence_current;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    if (error == CUDA_ERROR_NOT_PERMITTED && text && fence_enter() == FENCE_CLOSED)
        return *text = fence_reason(), CUDA_SUCCESS;
    return REAL(cuGetErrorString)(error, text);
}
