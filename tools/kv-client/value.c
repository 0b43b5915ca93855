/*
 * Values from an argument, a file or stdin: see client.h.
 *
 * What comes from outside is read whole into memory, for a put needs it in one piece. A file may be
 * a pipe or a device, so its size is not asked for: the buffer doubles as it fills.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

#define FIRST_ROOM 65536u

/* Reads to the end. False, and errno says why. */
static bool read_all(int fd, struct value *value)
{
	size_t room = FIRST_ROOM, length = 0;
	char *bytes = malloc(room);

	while (bytes) {
		ssize_t got = read(fd, bytes + length, room - length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		length += (size_t)got;
		if (got == 0) {
			*value = (struct value){bytes, length, bytes};
			return true;
		}
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

static bool read_file(const struct session *session, const char *path, struct value *value)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool done = fd >= 0 && read_all(fd, value);

	if (!done)
		show_error(session, CLIENT_FAILED, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return done;
}

bool value_take(const struct session *session, const char *word, struct value *value)
{
	if (word[0] == '@' && word[1] != '@')
		return read_file(session, word + 1, value);
	if (strcmp(word, "-") == 0 && !session->prompt) {
		if (read_all(STDIN_FILENO, value))
			return true;
		show_error(session, CLIENT_FAILED, "stdin: %s", strerror(errno));
		return false;
	}
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
