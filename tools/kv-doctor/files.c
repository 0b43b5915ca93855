/* Files of a machine: see doctor.h. */
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

static bool join(const char *root, const char *name, char path[PATH_MAX])
{
	int length = snprintf(path, PATH_MAX, "%s%s", root, name);

	return length > 0 && length < PATH_MAX;
}

void file_name(char name[FILE_PATH], const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(name, FILE_PATH, format, arguments);
	va_end(arguments);
}

bool file_read(const char *root, const char *name, char *to, size_t size)
{
	char path[PATH_MAX];
	ssize_t count = -1;
	int fd;

	to[0] = '\0';
	if (!join(root, name, path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	count = read(fd, to, size - 1);
	close(fd);
	if (count < 0)
		return false;
	to[count] = '\0';
	if (count > 0 && to[count - 1] == '\n')
		to[count - 1] = '\0';
	return true;
}

char *file_load(const char *root, const char *name)
{
	char path[PATH_MAX], *text = NULL;
	size_t room = 0;
	ssize_t count;
	FILE *file;

	if (!join(root, name, path))
		return NULL;
	file = fopen(path, "re");
	if (!file)
		return NULL;
	/* No file of text holds a zero byte: so this is all of it. */
	count = getdelim(&text, &room, '\0', file);
	fclose(file);
	if (count >= 0)
		return text;
	free(text);
	return strdup("");
}

bool file_stat(const char *root, const char *name, struct stat *found)
{
	char path[PATH_MAX];

	return join(root, name, path) && stat(path, found) == 0;
}

bool file_exists(const char *root, const char *name)
{
	struct stat found;

	return file_stat(root, name, &found);
}

void file_link(const char *root, const char *name, char *to, size_t size)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *slash;
	ssize_t length;

	to[0] = '\0';
	if (!join(root, name, path))
		return;
	length = readlink(path, target, sizeof(target) - 1);
	if (length <= 0)
		return;
	target[length] = '\0';
	slash = strrchr(target, '/');
	snprintf(to, size, "%s", slash ? slash + 1 : target);
}

int file_list(const char *root, const char *name, char (*names)[FILE_NAME], int max)
{
	struct dirent **entries;
	char path[PATH_MAX];
	int found, count = 0;

	if (!join(root, name, path))
		return 0;
	found = scandir(path, &entries, NULL, versionsort);
	if (found < 0)
		return 0;
	for (int i = 0; i < found; i++) {
		const char *entry = entries[i]->d_name;

		if (entry[0] != '.' && strlen(entry) < FILE_NAME && count < max)
			memcpy(names[count++], entry, strlen(entry) + 1);
		free(entries[i]);
	}
	free(entries);
	return count;
}

bool file_matches(const char *root, const char *pattern)
{
	char path[PATH_MAX];
	glob_t found = {0};
	bool any;

	if (!join(root, pattern, path))
		return false;
	any = glob(path, 0, NULL, &found) == 0 && found.gl_pathc > 0;
	globfree(&found);
	return any;
}
