/* Where the sockets of the shm provider lie: see shm_directory.h. */
#include "fabric/shm_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_PATH sizeof(((struct sockaddr_un *)0)->sun_path)

bool shm_directory_at(unsigned index, char *directory, size_t size, bool *callers_only)
{
	const char *chosen = getenv("REMORA_SHM_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
	bool root = geteuid() == 0, session = !root && runtime && *runtime;
	int length = -1;

	*callers_only = false;
	if (chosen && *chosen)
		length = index == 0 ? snprintf(directory, size, "%s", chosen) : -1;
	else if (session && index == 0)
		length = snprintf(directory, size, "%s/remora", runtime);
	else if (!root && index == (session ? 1 : 0))
		length = snprintf(directory, size, "/tmp/remora-%u", (unsigned)geteuid());
	else if (index == (root ? 0 : session ? 2 : 1)) {
		length = snprintf(directory, size, "%s", SHM_SYSTEM_DIRECTORY);
		*callers_only = !root;
	}
	return length > 0 && (size_t)length < size;
}

const char *shm_directory_fault(const struct stat *stat, uid_t user)
{
	if (!S_ISDIR(stat->st_mode))
		return " is not a directory; set REMORA_SHM_DIR";
	if (stat->st_uid != user && stat->st_uid != 0)
		return " belongs to somebody else; set REMORA_SHM_DIR";
	if ((stat->st_mode & (S_IWGRP | S_IWOTH)) && !(stat->st_mode & S_ISVTX))
		return ": others may write to it; chmod go-w it";
	return NULL;
}

/* ------------------------------------------------------------------------------------------
 * Sockets that were left behind
 */

/* Whether connecting is refused: then nothing listens. */
static bool is_refused(const char path[SOCKET_PATH])
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool refused;

	if (probe < 0)
		return false;
	memcpy(name.sun_path, path, strlen(path) + 1);
	refused = connect(probe, (const struct sockaddr *)&name, sizeof(name)) != 0 &&
		  errno == ECONNREFUSED;
	close(probe);
	return refused;
}

/* Whether both are one file: the name may have been given to another since it was opened. */
static bool is_same_file(int fd, const char *path)
{
	struct stat named, opened;

	return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 &&
	       opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/* Removes the socket before its lock, while that is held: as a listener does at its end. */
static bool take_stale(const char path[SOCKET_PATH], const char *lock, bool remove)
{
	struct stat stat;
	bool stale;
	int fd;

	if (lstat(path, &stat) != 0 || !S_ISSOCK(stat.st_mode) || stat.st_uid != geteuid())
		return false;
	fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	stale = flock(fd, LOCK_EX | LOCK_NB) == 0 && is_same_file(fd, lock) && is_refused(path);
	if (stale && remove) {
		unlink(path);
		unlink(lock);
	}
	close(fd);
	return stale;
}

unsigned shm_directory_stale(const char *directory, bool remove, char *first, size_t size)
{
	DIR *list = opendir(directory);
	struct dirent *entry;
	unsigned count = 0;

	*first = '\0';
	while (list && (entry = readdir(list))) {
		const char *ending = strrchr(entry->d_name, '.');
		char path[SOCKET_PATH], lock[SOCKET_PATH + 8];
		int length = snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);

		if (!ending || strcmp(ending, ".sock") != 0 || length < 0 ||
		    length >= (int)sizeof(path))
			continue;
		snprintf(lock, sizeof(lock), "%s.lock", path);
		if (take_stale(path, lock, remove) && !count++)
			snprintf(first, size, "%s", path);
	}
	if (list)
		closedir(list);
	return count;
}
