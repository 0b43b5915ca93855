/*
 * Where the sockets of the shm provider lie.
 *
 * An address with a slash in it is the path of a socket file. Any other is a name, and the file is
 * NAME.sock in one of these directories:
 *
 *	$REMORA_SHM_DIR			if set; then no other is looked at
 *	$XDG_RUNTIME_DIR/remora		a user's own, made by the session
 *	/tmp/remora-UID			a user's own without a session
 *	/run/remora			root's, and that of services: /run is root's alone
 *
 * A listener takes the first that fits its user, a caller looks through all. In /tmp anybody could
 * have made the directory, and planted a socket there: so a user's own must be the user's, and
 * closed to the writing of others, for listeners and callers alike. In /run only root can have made
 * it, and may have given it to the user of a service: callers trust that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/shm/internal.h"

#define SYSTEM_DIRECTORY "/run/remora"

/* The index-th directory for this user. False when there are no more. */
static bool directory_at(unsigned index, char *directory, size_t size)
{
	const char *chosen = getenv("REMORA_SHM_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
	bool root = geteuid() == 0, session = !root && runtime && *runtime;
	int length = -1;

	if (chosen && *chosen)
		length = index == 0 ? snprintf(directory, size, "%s", chosen) : -1;
	else if (session && index == 0)
		length = snprintf(directory, size, "%s/remora", runtime);
	else if (!root && index == (session ? 1 : 0))
		length = snprintf(directory, size, "/tmp/remora-%u", (unsigned)geteuid());
	else if (index == (root ? 0 : session ? 2 : 1))
		length = snprintf(directory, size, "%s", SYSTEM_DIRECTORY);
	return length > 0 && (size_t)length < size;
}

/* Is the directory ours (or root's), and can nobody else put sockets into it? */
static enum rmr_status check_directory(const char *directory)
{
	struct stat stat;

	if (lstat(directory, &stat) != 0)
		return error_errno(RMR_REFUSED, errno, "nobody listens at %s", directory);
	if (!S_ISDIR(stat.st_mode))
		return error_set(RMR_DENIED, "%s is not a directory; set REMORA_SHM_DIR",
				 directory);
	if (stat.st_uid != geteuid() && stat.st_uid != 0)
		return error_set(RMR_DENIED, "%s belongs to somebody else; set REMORA_SHM_DIR",
				 directory);
	if ((stat.st_mode & (S_IWGRP | S_IWOTH)) && !(stat.st_mode & S_ISVTX))
		return error_set(RMR_DENIED, "others may write to %s; chmod go-w it", directory);
	return RMR_OK;
}

static bool is_name(const char *address)
{
	return address[strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "0123456789._-")] == 0 &&
	       address[0] != '.';
}

static enum rmr_status not_a_name(const char *address)
{
	return error_set(RMR_BAD_ADDRESS,
			 "'%s' is no name for shm; use letters, digits, '.', '_' and '-', or the "
			 "path of a socket",
			 address);
}

static enum rmr_status copy_path(const char *address, char path[SHM_PATH_SIZE])
{
	if (strlen(address) >= SHM_PATH_SIZE)
		return error_set(RMR_BAD_ADDRESS, "a socket's path has at most %u letters",
				 SHM_PATH_SIZE - 1);
	strcpy(path, address);
	return RMR_OK;
}

/* Puts the socket's path together. */
static enum rmr_status join(char path[SHM_PATH_SIZE], const char *directory, const char *name)
{
	int length = snprintf(path, SHM_PATH_SIZE, "%s/%s.sock", directory, name);

	if (length < 0 || length >= (int)SHM_PATH_SIZE)
		return error_set(RMR_BAD_ADDRESS, "'%s' is too long for a socket's path", name);
	return RMR_OK;
}

enum rmr_status shm_address_to_listen(const char *address, char path[SHM_PATH_SIZE])
{
	char directory[SHM_PATH_SIZE];
	enum rmr_status status;

	if (strchr(address, '/'))
		return copy_path(address, path);
	if (!is_name(address))
		return not_a_name(address);
	if (!directory_at(0, directory, sizeof(directory)))
		return error_set(RMR_BAD_ADDRESS, "the directory's name is too long for a socket");
	if (mkdir(directory, geteuid() == 0 ? 0755 : 0700) != 0 && errno != EEXIST)
		return error_errno(RMR_DENIED, errno,
				   "cannot make %s; set REMORA_SHM_DIR to a directory of yours",
				   directory);
	status = check_directory(directory);
	return status == RMR_OK ? join(path, directory, address) : status;
}

enum rmr_status shm_address_to_connect(const char *address, unsigned index,
				       char path[SHM_PATH_SIZE])
{
	char directory[SHM_PATH_SIZE];
	enum rmr_status status = RMR_OK;

	if (strchr(address, '/'))
		return index == 0 ? copy_path(address, path) : RMR_AGAIN;
	if (!is_name(address))
		return not_a_name(address);
	if (!directory_at(index, directory, sizeof(directory)))
		return RMR_AGAIN;
	if (strcmp(directory, SYSTEM_DIRECTORY) != 0)
		status = check_directory(directory);
	return status == RMR_OK ? join(path, directory, address) : status;
}
