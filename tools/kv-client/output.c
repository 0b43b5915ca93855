/*
 * A value into a file: see client.h. It is written beside its place and renamed, so that a reader
 * finds the old one or the new one, and a full disk or Ctrl-C leaves the old one. What is no
 * regular file (a terminal, a pipe, /dev/null) is written as it is: there is nothing to replace.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

#define CHUNK ((size_t)1 << 20)

/* The temporary file; "": there is none. The handler of signals removes it. */
static char temporary[PATH_MAX];

static void remove_temporary(void)
{
	if (temporary[0])
		unlink(temporary);
}

/* False, and errno says why. ECANCELED: Ctrl-C. */
static bool write_all(int fd, const char *path, const uint8_t *bytes, size_t length)
{
	struct progress progress;
	char title[64];
	size_t done = 0;

	snprintf(title, sizeof(title), "writing %.40s", path);
	progress_begin(&progress, title, length, PROGRESS_BYTES);
	while (done < length && !interrupt_came()) {
		size_t part = length - done < CHUNK ? length - done : CHUNK;
		ssize_t written = write(fd, bytes + done, part);

		if (written < 0 && errno != EINTR)
			break;
		done += written < 0 ? 0 : (size_t)written;
		progress_show(&progress, done);
	}
	progress_end(&progress);
	if (done < length && interrupt_came())
		errno = ECANCELED;
	return done == length;
}

static bool write_as_it_is(const char *path, const void *value, size_t length)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write_all(fd, path, value, length);

	if (fd >= 0 && close(fd) && done)
		return false;
	return done;
}

static int open_temporary(const char *path)
{
	int fd = -1;

	/* A signal finds either no file, or its name. */
	interrupt_block(true);
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) < sizeof(temporary))
		fd = mkostemp(temporary, O_CLOEXEC);
	else
		errno = ENAMETOOLONG;
	if (fd < 0)
		temporary[0] = '\0';
	else
		interrupt_undo(remove_temporary);
	interrupt_block(false);
	return fd;
}

/* `mode`: that of the file which is replaced. */
static bool write_beside(const char *path, mode_t mode, const void *value, size_t length)
{
	int fd = open_temporary(path), error;
	bool done;

	if (fd < 0)
		return false;
	done = fchmod(fd, mode) == 0 && write_all(fd, path, value, length);
	error = errno;
	if (close(fd) && done) {
		error = errno;
		done = false;
	}
	if (done && rename(temporary, path)) {
		error = errno;
		done = false;
	}
	if (!done)
		remove_temporary();
	interrupt_undo(NULL);
	temporary[0] = '\0';
	errno = error;
	return done;
}

enum client_exit output_write(const struct session *session, const char *path, const void *value,
			      size_t length)
{
	mode_t mask = umask(0), mode = 0666 & ~mask;
	char resolved[PATH_MAX];
	struct stat found;
	bool exists, done;

	umask(mask);
	exists = stat(path, &found) == 0;
	if (exists)
		mode = found.st_mode & 0777;
	/* A link stays one. */
	if (exists && realpath(path, resolved))
		path = resolved;
	done = exists && !S_ISREG(found.st_mode) ? write_as_it_is(path, value, length)
						 : write_beside(path, mode, value, length);
	if (done)
		return CLIENT_OK;
	return show_error(session, CLIENT_FAILED, "%s: %s", path, strerror(errno));
}
