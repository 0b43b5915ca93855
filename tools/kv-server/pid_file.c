/*
 * The file with the process's number. It is locked as long as the server lives, so that a second
 * one is refused, and a file that a killed server left behind is not: the kernel ends its lock. The
 * lock is taken before anything else; the number is written when clients can come.
 *
 * A file that holds something else than a number is somebody's: it is not touched.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server.h"

#define NUMBER_SIZE 24

/* Reads what is in it, without the end of the line. */
static void read_number(int fd, char number[NUMBER_SIZE])
{
	ssize_t length = pread(fd, number, NUMBER_SIZE - 1, 0);

	number[length > 0 ? length : 0] = '\0';
	number[strcspn(number, "\n")] = '\0';
}

/* Did its last holder remove the file between our opening and our locking it? */
static bool is_gone(int fd, const char *path)
{
	struct stat ours, there;

	return fstat(fd, &ours) == 0 && (stat(path, &there) != 0 || ours.st_ino != there.st_ino ||
					 ours.st_dev != there.st_dev);
}

bool pid_file_take(struct pid_file *file, const char *path, char message[SERVER_MESSAGE])
{
	char number[NUMBER_SIZE];

	*file = (struct pid_file){.path = path, .fd = -1};
	if (!path)
		return true;
	do {
		if (file->fd >= 0)
			close(file->fd);
		file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
		if (file->fd < 0) {
			snprintf(message, SERVER_MESSAGE, "--pid-file: cannot write %s: %s", path,
				 strerror(errno));
			return false;
		}
		if (flock(file->fd, LOCK_EX | LOCK_NB) != 0) {
			read_number(file->fd, number);
			snprintf(message, SERVER_MESSAGE,
				 "--pid-file: another server%s%s has %s; stop it, or give another "
				 "file",
				 *number ? ", process " : "", number, path);
			close(file->fd);
			file->fd = -1;
			return false;
		}
	} while (is_gone(file->fd, path));
	read_number(file->fd, number);
	if (number[strspn(number, "0123456789")]) {
		snprintf(message, SERVER_MESSAGE,
			 "--pid-file: %s holds something else than a process's number; give "
			 "another file",
			 path);
		close(file->fd);
		file->fd = -1;
		return false;
	}
	return true;
}

bool pid_file_write(const struct pid_file *file, char message[SERVER_MESSAGE])
{
	char number[NUMBER_SIZE];
	int length = snprintf(number, sizeof(number), "%d\n", (int)getpid());

	if (file->fd < 0 ||
	    (ftruncate(file->fd, 0) == 0 && pwrite(file->fd, number, (size_t)length, 0) == length))
		return true;
	snprintf(message, SERVER_MESSAGE, "--pid-file: cannot write %s: %s", file->path,
		 strerror(errno));
	return false;
}

void pid_file_remove(struct pid_file *file)
{
	if (file->fd < 0)
		return;
	/* --user may have taken the right to the directory; an empty file names nobody. */
	if (unlink(file->path) != 0)
		(void)!ftruncate(file->fd, 0);
	close(file->fd);
	file->fd = -1;
}
