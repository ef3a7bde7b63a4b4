/* The state file: made complete under another name, then linked, so nobody sees half of it. */
#include "common/files.h"

#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool byte_lock(int fd, off_t byte, short type, bool wait)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int done;
    do
        done = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
    while (done < 0 && errno == EINTR);
    return !done;
}

bool bytes_locked_by_others(int fd, off_t first, off_t count)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
    return !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

static void mutex_prepare(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &shared);
    pthread_mutexattr_destroy(&shared);
}

static void machine_prepare(struct machine *machine, const struct facts *facts, size_t bytes)
{
    machine->magic = MACHINE_MAGIC;
    machine->version = MACHINE_VERSION;
    machine->bytes = bytes;
    machine->facts = *facts;
    mutex_prepare(&machine->incident_mutex);
    for (uint32_t i = 0; i < facts->card_count; i++)
        mutex_prepare(&machine->cards[i].mutex);
}

/* So that no page of it is missing when it is touched: on a full disk that would be SIGBUS. */
static bool reserve(int fd, size_t first, size_t bytes)
{
    do
        errno = posix_fallocate(fd, (off_t)first, (off_t)bytes);
    while (errno == EINTR);
    return !errno;
}

static size_t card_at(uint32_t card)
{
    return offsetof(struct machine, cards) + card * sizeof(struct card);
}

static bool reserve_cards(int fd, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!reserve(fd, card_at(i), offsetof(struct card, runs)))
            return false;
    return true;
}

/* Most of the file are runs: holes, until somebody takes their slot (slot_reserve). */
static bool fill(int fd, const struct facts *facts)
{
    size_t bytes = card_at(facts->card_count);
    if (ftruncate(fd, (off_t)bytes) || !reserve(fd, 0, sizeof(struct machine)) ||
        !reserve_cards(fd, facts->card_count))
        return false;
    struct machine *machine = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (machine == MAP_FAILED)
        return false;
    machine_prepare(machine, facts, bytes);
    munmap(machine, bytes);
    return true;
}

/* In a folder that a group shares, which its set-group-ID bit tells, the machine is the group's. */
static mode_t mode_in_its_folder(const char *path)
{
    char copy[4096];
    struct stat folder;
    snprintf(copy, sizeof copy, "%s", path);
    return !stat(dirname(copy), &folder) && folder.st_mode & S_ISGID ? 0660 : 0600;
}

int state_make(const struct settings *settings, bool replace)
{
    char fresh[4096];
    snprintf(fresh, sizeof fresh, "%s.%d.%llx", settings->path, getpid(), (long long)now_ns());
    int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int failed = !fill(fd, &settings->facts) || fchmod(fd, mode_in_its_folder(settings->path));
    if (!failed)
        failed = replace ? rename(fresh, settings->path) : link(fresh, settings->path);
    int error = errno;
    unlink(fresh);
    close(fd);
    errno = error;
    return failed && error != EEXIST ? -1 : 0;
}

bool slot_reserve(int fd, uint32_t card_count, unsigned slot)
{
    for (uint32_t i = 0; i < card_count; i++)
        if (!reserve(fd, card_at(i) + offsetof(struct card, runs[slot]),
                     sizeof(struct run[RUNS])))
            return false;
    return true;
}

bool state_current(int fd, const char *path)
{
    struct stat open_file, named;
    return !fstat(fd, &open_file) && !stat(path, &named) && open_file.st_ino == named.st_ino &&
           open_file.st_dev == named.st_dev;
}
