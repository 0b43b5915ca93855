/*
 * Where the sockets of the shm provider lie.
 *
 * An address with a slash in it is the path of a socket file. Any other is a name, and the file is
 * NAME.sock in one of the directories that fabric/shm_directory.h lists.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/shm/internal.h"
#include "fabric/shm_directory.h"

/* Is the directory ours (or root's), and can nobody else put sockets into it? */
static enum rmr_status check_directory(const char *directory)
{
	const char *fault;
	struct stat stat;

	if (lstat(directory, &stat) != 0)
		return error_errno(RMR_REFUSED, errno, "nobody listens at %s", directory);
	fault = shm_directory_fault(&stat, geteuid());
	if (fault)
		return error_set(RMR_DENIED, "%s%s", directory, fault);
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
	bool callers_only;

	if (strchr(address, '/'))
		return copy_path(address, path);
	if (!is_name(address))
		return not_a_name(address);
	if (!shm_directory_at(0, directory, sizeof(directory), &callers_only))
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
	bool callers_only;

	if (strchr(address, '/'))
		return index == 0 ? copy_path(address, path) : RMR_AGAIN;
	if (!is_name(address))
		return not_a_name(address);
	if (!shm_directory_at(index, directory, sizeof(directory), &callers_only))
		return RMR_AGAIN;
	if (!callers_only && strcmp(directory, SHM_SYSTEM_DIRECTORY) != 0)
		status = check_directory(directory);
	return status == RMR_OK ? join(path, directory, address) : status;
}
