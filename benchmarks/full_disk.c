// Stands for a full disk where nothing may be mounted: LD_PRELOAD it with FULL_DISK_FOLDER, whose regular files may
// hold FULL_DISK_BYTES together. What fits of a write is written; then it fails with ENOSPC, as on a real one.
// Build: cc -shared -fPIC -O1 -o full_disk.so full_disk.c -ldl
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long long used(const char *folder) {
  long long sum = 0;
  DIR *open_folder = opendir(folder);
  if (!open_folder) return 0;
  for (struct dirent *entry; (entry = readdir(open_folder));) {
    char path[PATH_MAX];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (!lstat(path, &found) && S_ISREG(found.st_mode)) sum += found.st_size;
  }
  closedir(open_folder);
  return sum;
}

// Bytes of a write of count bytes at offset that fit; offset < 0 is the file's position.
static size_t fits(int fd, size_t count, off_t offset, int append) {
  const char *folder = getenv("FULL_DISK_FOLDER"), *bytes = getenv("FULL_DISK_BYTES");
  char link[64], path[PATH_MAX];
  struct stat found;
  if (!folder || !bytes || fstat(fd, &found) || !S_ISREG(found.st_mode)) return count;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return count;
  path[length] = 0;
  size_t prefix = strlen(folder);
  if (strncmp(path, folder, prefix) || path[prefix] != '/') return count;
  if (append) offset = found.st_size;
  if (offset < 0) offset = lseek(fd, 0, SEEK_CUR);
  long long growth = (long long)offset + (long long)count - found.st_size;
  long long room = atoll(bytes) - used(folder);
  if (growth <= 0 || growth <= room) return count;
  long long fitting = (long long)count - growth + (room > 0 ? room : 0);
  return fitting > 0 ? (size_t)fitting : 0;
}

static int appends(int fd) {
  char path[64], line[128];
  unsigned flags = 0;
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  FILE *info = fopen(path, "r");
  if (!info) return 0;
  while (fgets(line, sizeof line, info))
    if (sscanf(line, "flags: %o", &flags) == 1) break;
  fclose(info);
  return (flags & 02000) != 0;  // O_APPEND
}

ssize_t write(int fd, const void *data, size_t count) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  size_t fitting = count && getenv("FULL_DISK_FOLDER") ? fits(fd, count, -1, appends(fd)) : count;
  if (count && !fitting) return errno = ENOSPC, -1;
  return real(fd, data, fitting);
}

static ssize_t write_at(const char *name, int fd, const void *data, size_t count, off_t offset) {
  ssize_t (*real)(int, const void *, size_t, off_t) = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
  size_t fitting = fits(fd, count, offset, 0);
  if (count && !fitting) return errno = ENOSPC, -1;
  return real(fd, data, fitting, offset);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset) { return write_at("pwrite", fd, data, count, offset); }
ssize_t pwrite64(int fd, const void *data, size_t count, off_t offset) {
  return write_at("pwrite64", fd, data, count, offset);
}
