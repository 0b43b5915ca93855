/*
 * The file of lines that were typed: $XDG_STATE_HOME/remora/history, else
 * ~/.local/state/remora/history; a line each, for the owner alone, as values may be secrets.
 *
 * Each line is appended when it is typed, so that two prompts at once keep the lines of both. When
 * the file has grown to twice what is wanted, its younger half is kept. Whatever cannot be done (no
 * home, no room) is left undone: history is a comfort, and no reason to complain.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

#define LINES_KEPT 1000u

/* Makes the directories on the way. */
static bool find_path(char path[PATH_MAX])
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int length;

	if (state && *state == '/')
		length = snprintf(path, PATH_MAX, "%s/remora/history", state);
	else if (home && *home == '/')
		length = snprintf(path, PATH_MAX, "%s/.local/state/remora/history", home);
	else
		return false;
	if (length >= PATH_MAX)
		return false;
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	return true;
}

static void write_line(const char *path, const char *line, int flags)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
	size_t length = strlen(line);
	char *whole = malloc(length + 2);

	if (fd >= 0 && whole) {
		memcpy(whole, line, length);
		memcpy(whole + length, "\n", 2);
		/* In one piece, so that lines of others do not come between. */
		if (fchmod(fd, 0600) || write(fd, whole, length + 1) < 0)
			(void)0;
	}
	free(whole);
	if (fd >= 0)
		close(fd);
}

void history_append(const char *line)
{
	char path[PATH_MAX];

	if (*line && *line != ' ' && find_path(path))
		write_line(path, line, O_APPEND);
}

/* Replaces the file by its younger half. */
static void shorten(const char *path, FILE *file, size_t skip)
{
	char temporary[PATH_MAX + 8];
	char *line = NULL;
	size_t room = 0, at = 0;
	FILE *kept;
	int fd;

	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
	kept = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (!kept) {
		if (fd >= 0)
			close(fd);
		return;
	}
	rewind(file);
	while (getline(&line, &room, file) > 0)
		if (at++ >= skip)
			fputs(line, kept);
	free(line);
	if (fclose(kept) || rename(temporary, path))
		unlink(temporary);
}

void history_load(void (*fn)(void *context, const char *line), void *context)
{
	char path[PATH_MAX];
	char *line = NULL;
	size_t room = 0, count = 0;
	FILE *file = find_path(path) ? fopen(path, "re") : NULL;

	if (!file)
		return;
	while (getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		fn(context, line);
		count++;
	}
	free(line);
	if (count > 2 * LINES_KEPT)
		shorten(path, file, count - LINES_KEPT);
	fclose(file);
}
