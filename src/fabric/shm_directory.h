/*
 * The directories in which the sockets of the shm provider lie, for a name that is not a path:
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
#ifndef FABRIC_SHM_DIRECTORY_H
#define FABRIC_SHM_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define SHM_SYSTEM_DIRECTORY "/run/remora"

/* The index-th directory for this user. False when there are no more. Where a listener may not make
 * its socket (a user in /run/remora), *callers_only is set. */
bool shm_directory_at(unsigned index, char *directory, size_t size, bool *callers_only);

/* What is wrong with a directory for this user: " belongs to somebody else; ...", to stand behind
 * its name. NULL: it is the user's (or root's), and nobody else can put sockets into it. */
const char *shm_directory_fault(const struct stat *stat, uid_t user);

/* Counts the sockets in the directory that listeners of this user left there when they were
 * killed, and removes them if `remove`. The first one's path is written to `first`. A listener
 * holds the lock of its socket as long as it lives, and a socket is judged and removed under that
 * lock: one that is just being made is never taken for a dead one. Sockets without a lock are not
 * the provider's, and stay. */
unsigned shm_directory_stale(const char *directory, bool remove, char *first, size_t size);

#endif
