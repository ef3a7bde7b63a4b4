/*
 * How a process joins the machine.
 *
 * Joining is one at a time: who holds the lock on the entrance byte may look at the whole file,
 * replace it, or take a slot. The lock belongs to an open file that is never mapped: a mapping
 * keeps its open file alive in the child of a fork, and the kernel would then see the lock of a
 * dead parent as held.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cgroups.h"
#include "common/files.h"
#include "common/pids.h"
#include "common/queue.h"

static enum attaching complain(enum attaching failure, const char *what, const char *which)
{
    fprintf(stderr, "simcuda: %s%s\n", what, which);
    return failure;
}

/* Of the disk, with its reason. */
static enum attaching complain_of_disk(const char *what, const char *path)
{
    fprintf(stderr, "simcuda: cannot %s the state file %s: %s\n", what, path, strerror(errno));
    return ATTACH_NO_FILE;
}

static bool fits(const struct machine *machine, size_t bytes)
{
    return bytes >= sizeof *machine && machine->magic == MACHINE_MAGIC &&
           machine->version == MACHINE_VERSION && machine->bytes == bytes;
}

static bool agrees(const struct machine *machine, const struct settings *settings)
{
    return !settings->facts_given ||
           !memcmp(&machine->facts, &settings->facts, sizeof settings->facts);
}

/* A second open file of the state, mapped and closed again; NULL if it is no machine like ours. */
static struct machine *map(const struct settings *settings)
{
    struct stat status;
    struct machine *machine = MAP_FAILED;
    int fd = open(settings->path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && !fstat(fd, &status) && status.st_size)
        machine = mmap(0, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (machine == MAP_FAILED)
        return 0;
    if (fits(machine, (size_t)status.st_size) && agrees(machine, settings))
        return machine;
    munmap(machine, (size_t)status.st_size);
    return 0;
}

/*
 * A slot whose process died is emptied on all cards before anybody else may take it. Who is dead is
 * asked first: one who dies while the cards are swept is left for the next time.
 */
static void sweep_slots(struct attachment *here)
{
    struct machine *machine = here->machine;
    bool dead[SLOTS];
    for (unsigned i = 0; i < machine->slots_used; i++)
        dead[i] = machine->slots[i].pid && !slot_alive(here, i);
    for (uint32_t i = 0; i < machine->facts.card_count; i++)
        card_sweep(here, &machine->cards[i]);
    for (unsigned i = 0; i < machine->slots_used; i++)
        if (dead[i])
            machine->slots[i].pid = 0;
}

static bool find_slot(struct attachment *here)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (!here->machine->slots[i].pid && byte_lock(here->lock_fd, (off_t)i, F_WRLCK, false)) {
            here->slot = (int)i;
            return true;
        }
    return false;
}

static void take_slot(struct attachment *here)
{
    struct machine *machine = here->machine;
    unsigned slot = (unsigned)here->slot;
    cgroups_of_process(machine->slots[slot].cgroups);
    for (uint32_t card = 0; card < machine->facts.card_count; card++)
        machine->cards[card].shares[slot] = (struct share){0};
    pid_tell(&machine->slots[slot]);
    if (machine->slots_used <= slot)
        machine->slots_used = slot + 1;
}

static enum attaching join(struct attachment *here, const char *path, bool as_process)
{
    if (!as_process) {
        byte_lock(here->lock_fd, BYTE_ONLOOKERS, F_RDLCK, true);
        return ATTACHED;
    }
    sweep_slots(here);
    if (!find_slot(here))
        return complain(ATTACH_FULL, "too many processes on this machine; end some of them", "");
    if (!slot_reserve(here->lock_fd, here->machine->facts.card_count, (unsigned)here->slot))
        return complain_of_disk("make room in", path);
    take_slot(here);
    return ATTACHED;
}

/* A file that is no machine may be anybody's, and a device or a pipe is no file. */
static bool replaceable(int fd)
{
    struct stat status;
    uint64_t magic = 0;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode))
        return false;
    return !status.st_size || (pread(fd, &magic, sizeof magic, 0) == (ssize_t)sizeof magic &&
                               magic == MACHINE_MAGIC);
}

/* With the entrance locked: take part in the machine, or make it anew if nobody uses it. */
static enum attaching enter(struct attachment *here, struct settings *settings, bool as_process,
                            bool *again)
{
    here->machine = map(settings);
    if (here->machine)
        return join(here, settings->path, as_process);
    if (bytes_locked_by_others(here->lock_fd, 0, SLOTS) ||
        bytes_locked_by_others(here->lock_fd, BYTE_ONLOOKERS, 1))
        return complain(ATTACH_OTHER_MACHINE,
                        "processes with other settings are running; end them, use their settings, "
                        "or set another SIMCUDA_STATE than ",
                        settings->path);
    if (!replaceable(here->lock_fd))
        return complain(ATTACH_NO_FILE,
                        "what is there is no machine; set another SIMCUDA_STATE than ",
                        settings->path);
    *again = true;
    if (state_make(settings, true))
        return complain_of_disk("replace", settings->path);
    return ATTACHED;
}

/* Not in the place of a standard stream that the program has closed: what it says would be written
 * over the machine. */
static int open_aside(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int aside = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return aside;
}

static enum attaching try_once(struct attachment *here, struct settings *settings, bool as_process,
                               bool *again)
{
    *again = false;
    here->lock_fd = open_aside(settings->path);
    if (here->lock_fd < 0) {
        *again = errno == ENOENT && !state_make(settings, false);
        return *again ? ATTACHED : complain_of_disk("open or make", settings->path);
    }
    byte_lock(here->lock_fd, BYTE_ENTRANCE, F_WRLCK, true);
    enum attaching result = ATTACHED;
    if (state_current(here->lock_fd, settings->path))
        result = enter(here, settings, as_process, again);
    else
        *again = true; /* it was replaced while we waited */
    byte_lock(here->lock_fd, BYTE_ENTRANCE, F_UNLCK, false);
    return result;
}

/* A real driver reaches a card through its device node: where that is missing, so is the card. */
static void look_around(struct attachment *here, const struct settings *settings)
{
    char path[4096];
    for (uint32_t i = 0; i < here->machine->facts.card_count; i++) {
        snprintf(path, sizeof path, "%s/nvidia%u", settings->nodes, i);
        if (!*settings->nodes || !access(path, F_OK))
            here->seen[here->seen_count++] = i;
    }
}

enum attaching machine_attach(struct attachment *here, struct settings *settings, bool as_process)
{
    const char *failed = settings_read(settings);
    bool again = !failed;
    enum attaching result = ATTACH_SETTINGS_WRONG;
    *here = (struct attachment){.lock_fd = -1, .slot = -1};
    if (failed)
        complain(ATTACH_SETTINGS_WRONG, failed, "");
    while (again) {
        result = try_once(here, settings, as_process, &again);
        if (again || result != ATTACHED)
            machine_forget(here);
    }
    if (result == ATTACHED)
        look_around(here, settings);
    else
        settings_free(settings);
    return result;
}

void machine_forget(struct attachment *here)
{
    if (here->machine)
        munmap(here->machine, here->machine->bytes);
    if (here->lock_fd >= 0)
        close(here->lock_fd);
    *here = (struct attachment){.lock_fd = -1, .slot = -1};
}

bool slot_alive(const struct attachment *here, unsigned slot)
{
    return (int)slot == here->slot || bytes_locked_by_others(here->lock_fd, (off_t)slot, 1);
}

bool card_seen(const struct attachment *here, uint32_t card)
{
    for (uint32_t i = 0; i < here->seen_count; i++)
        if (here->seen[i] == card)
            return true;
    return false;
}
