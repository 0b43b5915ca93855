/*
 * Values from an argument, a file or stdin, and how far they have come: see client.h.
 *
 * What comes from outside is read whole into memory, for a put needs it in one piece. A file may be
 * a pipe or a device, so its size is only a hint: the buffer doubles as it fills.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

#define FIRST_ROOM 65536u
#define CHUNK	   ((size_t)1 << 20) /* between looks at the progress */

/* What the file seems to have; 0: nobody knows. */
static size_t expected_size(int fd)
{
	struct stat found;

	return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) ? (size_t)found.st_size : 0;
}

/* Reads to the end. False, and errno says why. */
static bool read_all(int fd, struct progress *progress, struct value *value)
{
	size_t room = progress->total ? progress->total + 1 : FIRST_ROOM, length = 0;
	char *bytes = malloc(room);

	while (bytes) {
		size_t part = room - length < CHUNK ? room - length : CHUNK;
		ssize_t got = read(fd, bytes + length, part);

		if (interrupt_came()) {
			errno = ECANCELED;
			break;
		}
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		length += (size_t)got;
		if (got == 0) {
			*value = (struct value){bytes, length, bytes};
			return true;
		}
		progress_show(progress, length);
		if (length == room) {
			char *larger = realloc(bytes, room * 2);

			if (!larger)
				break;
			bytes = larger;
			room *= 2;
		}
	}
	free(bytes);
	return false;
}

static bool read_from(const struct session *session, int fd, const char *name, struct value *value)
{
	struct progress progress;
	char title[64];
	bool done;
	int error;

	snprintf(title, sizeof(title), "reading %.40s", name);
	progress_begin(&progress, title, expected_size(fd), PROGRESS_BYTES);
	done = read_all(fd, &progress, value);
	error = errno;
	progress_end(&progress);
	if (!done)
		show_error(session, CLIENT_FAILED, "%s: %s", name, strerror(error));
	return done;
}

bool value_take(const struct session *session, const char *word, struct value *value)
{
	if (word[0] == '@' && word[1] != '@') {
		int fd = open(word + 1, O_RDONLY | O_CLOEXEC);
		bool done;

		if (fd < 0) {
			show_error(session, CLIENT_FAILED, "%s: %s", word + 1, strerror(errno));
			return false;
		}
		done = read_from(session, fd, word + 1, value);
		close(fd);
		return done;
	}
	if (strcmp(word, "-") == 0 && !session->prompt)
		return read_from(session, STDIN_FILENO, "stdin", value);
	if (word[0] == '@')
		word++;
	*value = (struct value){word, strlen(word), NULL};
	return true;
}

void value_free(struct value *value)
{
	free(value->owned);
	value->owned = NULL;
}

/* ------------------------------------------------------------------------------------------
 * On their way
 */

static bool tell_progress(void *context, uint64_t done, uint64_t total)
{
	struct transfer *transfer = context;

	transfer->progress.total = total;
	progress_show(&transfer->progress, done);
	return !interrupt_came();
}

void transfer_begin(struct transfer *transfer, kv_client_t *client, const char *verb,
		    const char *key)
{
	*transfer = (struct transfer){.client = client};
	/* A key may hold anything; the line of progress may not. */
	snprintf(transfer->title, sizeof(transfer->title), "%s %.40s", verb, key);
	for (char *c = transfer->title; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
	/* How much it is nobody knows yet. */
	progress_begin(&transfer->progress, transfer->title, 0, PROGRESS_BYTES);
	/* Where nobody looks on the fastest way is taken. */
	if (client && isatty(STDERR_FILENO))
		kv_client_set_progress(client, tell_progress, transfer);
}

void transfer_end(struct transfer *transfer)
{
	if (transfer->client)
		kv_client_set_progress(transfer->client, NULL, NULL);
	progress_end(&transfer->progress);
}
