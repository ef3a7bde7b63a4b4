/* The few lines that the fence writes for people: on the program's stderr, and once for all processes
 * of a tenant. That a line was told is marked in the tenant's folder, and where that cannot be written
 * (a container's mounts, a folder that is gone) in the environment, for the children. */
#define _GNU_SOURCE
#include "environment.h"
#include "fence.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUIET "PARTAGE_QUIET"
enum { LINE_BYTES = 2048 };

/* True: it is for us to tell. */
static bool mark_in_folder(const char *mark, bool *marked)
{
    errno = 0;
    int file = fence_open_mark(mark);
    *marked = file >= 0 || errno == EEXIST;
    if (file < 0)
        return !*marked;
    close(file);
    return true;
}

static bool mine_to_tell(const char *mark)
{
    bool marked;
    const char *quiet = getenv(QUIET);
    if ((quiet && *quiet) || getenv(mark) || !mark_in_folder(mark, &marked))
        return false;
    if (!marked)
        environment_set(mark, "1");
    return true;
}

/* A reader that went away, or one that does not read, must not end or stop the program. */
static void write_line(const char *line, size_t bytes)
{
    const struct timespec at_once = {0, 0};
    struct pollfd errors = {.fd = STDERR_FILENO, .events = POLLOUT};
    sigset_t pipe_signal, before;
    if (poll(&errors, 1, 0) != 1 || errors.revents != POLLOUT)
        return;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    if (write(STDERR_FILENO, line, bytes) < 0 && errno == EPIPE && !sigismember(&before, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void say_once(const char *mark, const char *text)
{
    char line[LINE_BYTES];
    struct calm calm = calm_begin();
    if (mine_to_tell(mark)) {
        int bytes = snprintf(line, sizeof line, "%s (" QUIET "=1 silences this line.)\n", text);
        write_line(line, bytes < (int)sizeof line ? (size_t)bytes : sizeof line - 1);
    }
    calm_end(calm);
}
