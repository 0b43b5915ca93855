/*
 * Giving up rights, in two steps around the start of the server.
 *
 * Memory, key files and adapters are root's business, and done before. The sockets are not: a
 * socket for shared memory should be the user's own, in the user's directory, so that it can be
 * removed when the server ends, and callers are compared with the right user; but a port below 1024
 * wants a right that the user has not. So user_begin() changes the effective user, which all files
 * are made by, and keeps CAP_NET_BIND_SERVICE alone of root's capabilities in force; the saved user
 * stays root. user_finish() ends that: setresuid() with three users that are not root takes all
 * capabilities away, and the C library does it for each thread of the process.
 */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "server.h"

__attribute__((format(printf, 2, 3))) static bool wrong(char *message, const char *format, ...)
{
	va_list arguments;
	int used = snprintf(message, SERVER_MESSAGE, "--user: ");

	va_start(arguments, format);
	vsnprintf(message + used, SERVER_MESSAGE - (size_t)used, format, arguments);
	va_end(arguments);
	return false;
}

/* Takes a number that is no name. */
static bool parse_id(const char *text, unsigned *id)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || number >= UINT32_MAX)
		return false;
	*id = (unsigned)number;
	return true;
}

static bool find_ids(const char *group, struct user *user, char *message)
{
	const struct passwd *found = getpwnam(user->name);
	const struct group *found_group;
	unsigned id = 0;

	if (found) {
		user->uid = found->pw_uid;
		user->gid = found->pw_gid;
	} else if (parse_id(user->name, &id)) {
		user->uid = user->gid = id;
	} else {
		return wrong(message, "there is no user '%s'; adduser --system %s makes one",
			     user->name, user->name);
	}
	if (!group)
		return true;
	found_group = getgrnam(group);
	if (!found_group && !parse_id(group, &id))
		return wrong(message, "there is no group '%s'; addgroup --system %s makes one",
			     group, group);
	user->gid = found_group ? found_group->gr_gid : id;
	return true;
}

bool user_find(const char *text, struct user *user, char message[SERVER_MESSAGE])
{
	char *colon;

	*user = (struct user){.uid = geteuid(), .gid = getegid()};
	if (!text)
		return true;
	if (strlen(text) >= sizeof(user->name))
		return wrong(message, "'%.20s...' is too long a name", text);
	strcpy(user->name, text);
	colon = strchr(user->name, ':');
	if (colon)
		*colon = '\0';
	if (!find_ids(colon ? colon + 1 : NULL, user, message))
		return false;
	user->changes = user->uid != geteuid() || (colon && user->gid != getegid());
	if (user->changes && geteuid() != 0)
		return wrong(message, "only root can become %s; start as root, or leave it out",
			     text);
	return true;
}

/* Of root's capabilities the one that binding needs. Where it is not to be had, in some containers,
 * ports from 1024 on still work. */
static void keep_bind_capability(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (syscall(SYS_capget, &header, data) != 0)
		return;
	data[0].effective |= data[0].permitted & (1u << CAP_NET_BIND_SERVICE);
	if (syscall(SYS_capset, &header, data) != 0)
		log_debug("no CAP_NET_BIND_SERVICE: %s", strerror(errno));
}

bool user_begin(const struct user *user, char message[SERVER_MESSAGE])
{
	struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

	if (!user->changes)
		return true;
	/* Adapters pin memory for each client; root is not limited in that, the user would be. */
	if (setrlimit(RLIMIT_MEMLOCK, &all) != 0)
		log_debug("the limit of locked memory stays: %s", strerror(errno));
	/* It is of the user that we were. */
	unsetenv("XDG_RUNTIME_DIR");
	if (initgroups(user->name, user->gid) != 0 || setegid(user->gid) != 0 ||
	    seteuid(user->uid) != 0)
		return wrong(message, "cannot become %s: %s", user->name, strerror(errno));
	if (user->uid != 0)
		keep_bind_capability();
	return true;
}

bool user_finish(const struct user *user, char message[SERVER_MESSAGE])
{
	if (!user->changes)
		return true;
	if (setresgid(user->gid, user->gid, user->gid) != 0 ||
	    setresuid(user->uid, user->uid, user->uid) != 0)
		return wrong(message, "cannot become %s: %s", user->name, strerror(errno));
	if (user->uid != 0 && seteuid(0) == 0)
		return wrong(message, "the way back to root is still open; this is no safe start");
	return true;
}
