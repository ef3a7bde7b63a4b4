/* Files and folders that are made with their final owner and mode, whatever the umask. */
#define _GNU_SOURCE
#include "spank.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool refuse(struct problem *problem, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof problem->text, format, arguments);
    va_end(arguments);
    return false;
}

bool path_join(char path[PATH_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(path, PATH_BYTES, format, arguments);
    va_end(arguments);
    return bytes > 0 && bytes < PATH_BYTES;
}

static bool write_all(int file, const char *content, size_t bytes)
{
    while (bytes) {
        ssize_t written = write(file, content, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        content += written;
        bytes -= (size_t)written;
    }
    return true;
}

bool file_write(const char *path, const void *content, size_t bytes, mode_t mode, uid_t uid, gid_t gid)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    bool written = write_all(file, content, bytes) && !fchown(file, uid, gid) && !fchmod(file, mode);
    int error = errno;
    close(file);
    errno = error;
    return written;
}

bool file_read(const char *path, void *content, size_t bytes)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    bool whole = !fstat(file, &about) && S_ISREG(about.st_mode) && (size_t)about.st_size == bytes &&
                 pread(file, content, bytes, 0) == (ssize_t)bytes;
    close(file);
    return whole;
}

bool folder_make(const char *path, mode_t mode)
{
    return (!mkdir(path, 0700) || errno == EEXIST) && !chmod(path, mode);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    remove(path);
    return 0;
}

void folder_clear(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
