/* Writes down, in their order, the calls by which a process changes the files of one folder.
 *
 * Preloaded into a process that works on a ledger; LYING_DISK_FOLDER says which folder and
 * LYING_DISK_LOG where to. A record is: one letter, the file's number, an offset, the length of what
 * follows, and that: the data of a write, or a path. What a disk makes of it is decided afterwards.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*next_write)(int, const void *, size_t);

static int journal(void) {
    static int handle = -2;
    if (handle == -2) {
        const char *path = getenv("LYING_DISK_LOG");
        next_write = dlsym(RTLD_NEXT, "write");
        handle = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    }
    return handle;
}

static int is_ours(const char *path) {
    const char *folder = getenv("LYING_DISK_FOLDER");
    return folder && !strncmp(path, folder, strlen(folder));
}

static void record(char what, uint64_t number, uint64_t at, const void *data, uint64_t size) {
    uint64_t head[3] = {number, at, size};
    if (journal() < 0) return;
    next_write(journal(), &what, 1);
    next_write(journal(), head, sizeof head);
    if (size) next_write(journal(), data, size);
}

/* Whose file a handle is of; its path is told every time, since it may have been given another one. */
static int number_of(int handle, uint64_t *number) {
    char link[64], path[4096];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0 || fstat(handle, &found)) return 0;
    path[size] = 0;
    if (!is_ours(path) || strstr(path, " (deleted)")) return 0;
    *number = found.st_ino;
    record('n', *number, 0, path, size);
    return 1;
}

#define NEXT(name) static __typeof__(&name) next; if (!next) next = dlsym(RTLD_NEXT, #name)
#define NOTED(call, told) \
    pthread_mutex_lock(&turn); \
    __typeof__(call) came = (call); \
    if (came >= 0) { told; } \
    pthread_mutex_unlock(&turn); \
    return came

static void wrote(int handle, uint64_t at, const void *data, ssize_t size) {
    uint64_t number;
    if (size > 0 && number_of(handle, &number)) record('w', number, at, data, size);
}

static void changed(char what, int handle, uint64_t at) {
    uint64_t number;
    if (number_of(handle, &number)) record(what, number, at, NULL, 0);
}

static void renamed(const char *from, const char *to) {
    struct stat found;
    if (is_ours(from)) record('u', 0, 0, from, strlen(from));
    if (is_ours(to) && !stat(to, &found)) record('r', found.st_ino, 0, to, strlen(to));
}

ssize_t pwrite(int handle, const void *data, size_t size, off_t at) {
    NEXT(pwrite);
    NOTED(next(handle, data, size, at), wrote(handle, at, data, came));
}

ssize_t pwrite64(int handle, const void *data, size_t size, off64_t at) {
    NEXT(pwrite64);
    NOTED(next(handle, data, size, at), wrote(handle, at, data, came));
}

ssize_t write(int handle, const void *data, size_t size) {
    if (journal() < 0) return next_write(handle, data, size);
    NOTED(next_write(handle, data, size), wrote(handle, lseek(handle, 0, SEEK_CUR) - came, data, came));
}

int ftruncate(int handle, off_t size) {
    NEXT(ftruncate);
    NOTED(next(handle, size), changed('t', handle, size));
}

int ftruncate64(int handle, off64_t size) {
    NEXT(ftruncate64);
    NOTED(next(handle, size), changed('t', handle, size));
}

int fsync(int handle) {
    NEXT(fsync);
    NOTED(next(handle), changed('s', handle, 0));
}

int fdatasync(int handle) {
    NEXT(fdatasync);
    NOTED(next(handle), changed('s', handle, 0));
}

int rename(const char *from, const char *to) {
    NEXT(rename);
    NOTED(next(from, to), renamed(from, to));
}

int renameat(int one, const char *from, int other, const char *to) {
    NEXT(renameat);
    NOTED(next(one, from, other, to), renamed(from, to));
}

int unlink(const char *path) {
    NEXT(unlink);
    NOTED(next(path), if (is_ours(path)) record('u', 0, 0, path, strlen(path)));
}
