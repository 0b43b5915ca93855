/*
 * Where the sockets of the shm provider lie.
 *
 * An address with a slash in it is the path of a socket file. Any other is a name, and the file is
 * NAME.sock in the first of these directories that applies:
 *
 *	$REMORA_SHM_DIR			if set; then no other is looked at
 *	/run/remora			for root, and for callers: where a system service listens
 *	$XDG_RUNTIME_DIR/remora		for a user with a session
 *	/tmp/remora-UID			for any other user; must be ours and closed to others
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/shm/shm.h"

#define SYSTEM_DIRECTORY "/run/remora"

/* The directory of this user; false when the name would be too long for a socket. */
static bool own_directory(char *directory, size_t size)
{
	const char *chosen = getenv("REMORA_SHM_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
	int length;

	if (chosen && *chosen)
		length = snprintf(directory, size, "%s", chosen);
	else if (geteuid() == 0)
		length = snprintf(directory, size, "%s", SYSTEM_DIRECTORY);
	else if (runtime && *runtime)
		length = snprintf(directory, size, "%s/remora", runtime);
	else
		length = snprintf(directory, size, "/tmp/remora-%u", (unsigned)geteuid());
	return length > 0 && (size_t)length < size;
}

/* Makes the directory if need be, and checks that nobody else can put sockets into it. */
static enum rmr_status secure_directory(const char *directory)
{
	struct stat stat;

	if (mkdir(directory, geteuid() == 0 ? 0755 : 0700) != 0 && errno != EEXIST)
		return error_errno(RMR_DENIED, errno,
				   "cannot make %s; set REMORA_SHM_DIR to a directory of yours",
				   directory);
	if (lstat(directory, &stat) != 0 || !S_ISDIR(stat.st_mode))
		return error_set(RMR_DENIED, "%s is not a directory; set REMORA_SHM_DIR",
				 directory);
	if (stat.st_uid != geteuid() && stat.st_uid != 0)
		return error_set(RMR_DENIED, "%s belongs to somebody else; set REMORA_SHM_DIR",
				 directory);
	return RMR_OK;
}

static bool is_name(const char *address)
{
	return address[strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "0123456789._-")] == 0 &&
	       address[0] != '.';
}

/* Puts the socket's path together. False when it does not fit. */
static bool join(char path[108], const char *directory, const char *name)
{
	int length = snprintf(path, 108, "%s/%s.sock", directory, name);

	return length > 0 && length < 108;
}

enum rmr_status shm_address_to_listen(const char *address, char path[108])
{
	char directory[100];
	enum rmr_status status;

	if (strchr(address, '/')) {
		if (strlen(address) >= 108)
			return error_set(RMR_BAD_ADDRESS,
					 "a socket's path has at most 107 letters");
		strcpy(path, address);
		return RMR_OK;
	}
	if (!is_name(address))
		return error_set(RMR_BAD_ADDRESS,
				 "'%s' is no name for shm; use letters, digits, '.', '_' and '-', "
				 "or the path of a socket",
				 address);
	if (!own_directory(directory, sizeof(directory)) || !join(path, directory, address))
		return error_set(RMR_BAD_ADDRESS, "the name is too long for a socket's path");
	status = secure_directory(directory);
	return status;
}

bool shm_address_to_connect(const char *address, unsigned index, char path[108])
{
	char directory[100];

	if (strchr(address, '/')) {
		if (index > 0 || strlen(address) >= 108)
			return false;
		strcpy(path, address);
		return true;
	}
	if (!is_name(address))
		return false;
	if (index == 0)
		return own_directory(directory, sizeof(directory)) &&
		       join(path, directory, address);
	return index == 1 && !getenv("REMORA_SHM_DIR") && join(path, SYSTEM_DIRECTORY, address);
}
