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

static bool take_file(const struct session *session, const char *path, struct value *value)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool done;

	if (fd < 0) {
		show_error(session, CLIENT_FAILED, "%s: %s", path, strerror(errno));
		return false;
	}
	done = read_from(session, fd, path, value);
	close(fd);
	return done;
}

bool value_take(const struct session *session, const struct word *word, struct value *value)
{
	const char *text = word->text;
	bool is_marked = text[0] == '@'; /* a file, or a text that begins with @ */

	if (is_marked && text[1] != '@') {
		if (strlen(text) == word->length)
			return take_file(session, text + 1, value);
		show_error(session, CLIENT_USAGE, "%s: a file's name has no zero byte", text + 1);
		return false;
	}
	if (strcmp(text, "-") == 0 && word->length == 1 && !session->prompt)
		return read_from(session, STDIN_FILENO, "stdin", value);
	*value = (struct value){text + is_marked, word->length - is_marked, NULL};
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
		    const struct word *key)
{
	*transfer = (struct transfer){.client = client};
	/* A key may hold anything; the line of progress may not. */
	snprintf(transfer->title, sizeof(transfer->title), "%s %.40s", verb, key->text);
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
