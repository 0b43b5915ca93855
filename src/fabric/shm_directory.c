/* Where the sockets of the shm provider lie: see shm_directory.h. */
#include "fabric/shm_directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
