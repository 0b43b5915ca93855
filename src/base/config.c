/*
 * The reader works in place: a line is cut into its name and its value by zeros, and a quoted value
 * moves to the left over its own quotes and backslashes. So all strings of a file live in the one
 * block that it was read into.
 */
#include "base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"

#define BLANKS " \t\r"

/* Where the reader stands. */
struct reader {
	const struct options_program *program;
	const char *const *excluded;
	const char *path;
	unsigned line;
	unsigned *set_in; /* for each option the line that has set it, 0: none */
	char *message;
};

__attribute__((format(printf, 2, 3))) static bool wrong(const struct reader *reader,
							const char *format, ...)
{
	int used = snprintf(reader->message, OPTIONS_MESSAGE_SIZE, "%s:%u: ", reader->path,
			    reader->line);
	va_list arguments;

	if (used < 0 || used >= OPTIONS_MESSAGE_SIZE)
		return false;
	va_start(arguments, format);
	vsnprintf(reader->message + used, OPTIONS_MESSAGE_SIZE - (size_t)used, format, arguments);
	va_end(arguments);
	return false;
}

static bool is_excluded(const char *const *excluded, const char *name)
{
	for (; excluded && *excluded; excluded++) {
		if (strcmp(*excluded, name) == 0)
			return true;
	}
	return false;
}

static char *skip_blanks(char *at)
{
	return at + strspn(at, BLANKS);
}

/* Ends the text before the blanks at its end. `end` is where it ends now. */
static void trim(char *start, char *end)
{
	while (end > start && strchr(BLANKS, end[-1]))
		end--;
	*end = '\0';
}

/* `at` is behind the opening quote. The value is moved there, without backslashes. Returns what
 * follows the closing quote; NULL: there is none. */
static char *unquote(char *at, char quote)
{
	char *to = at;

	for (; *at; at++) {
		if (*at == quote) {
			*to = '\0';
			return at + 1;
		}
		if (quote == '"' && *at == '\\' && (at[1] == '"' || at[1] == '\\'))
			at++;
		*to++ = *at;
	}
	return NULL;
}

/* Takes the value that begins at `at`; NULL, with a message, if it is wrong. */
static char *take_value(const struct reader *reader, char *at)
{
	char *rest, *end = at;

	if (*at == '"' || *at == '\'') {
		rest = unquote(at + 1, *at);
		if (!rest) {
			wrong(reader, "the quote is not closed");
			return NULL;
		}
		rest = skip_blanks(rest);
		if (*rest && *rest != '#') {
			wrong(reader, "'%.20s' follows the closing quote", rest);
			return NULL;
		}
		return at + 1;
	}
	while (*end && !(*end == '#' && (end == at || strchr(BLANKS, end[-1]))))
		end++;
	trim(at, end);
	if (!*at) {
		wrong(reader, "no value; write \"\" for an empty one");
		return NULL;
	}
	return at;
}

/* Was the variable of this option set before, be it by another name? */
static bool note_line(const struct reader *reader, const char *name)
{
	const struct options_program *program = reader->program;
	size_t mine = 0;

	while (mine < program->spec_count && strcmp(program->specs[mine].name, name) != 0)
		mine++;
	for (size_t i = 0; i < program->spec_count && mine < program->spec_count; i++) {
		if (reader->set_in[i] &&
		    program->specs[i].to.string == program->specs[mine].to.string)
			return wrong(reader, "%s: line %u has set it already", name,
				     reader->set_in[i]);
	}
	if (mine < program->spec_count)
		reader->set_in[mine] = reader->line;
	return true;
}

static bool parse_line(const struct reader *reader, char *line)
{
	char *name = skip_blanks(line), *equals, *value;
	char message[OPTIONS_MESSAGE_SIZE];

	if (*name == '\0' || *name == '#')
		return true;
	equals = strchr(name, '=');
	if (!equals || equals == name)
		return wrong(reader, "this is no 'name = value'; a comment begins with #");
	trim(name, equals);
	value = take_value(reader, skip_blanks(equals + 1));
	if (!value)
		return false;
	if (is_excluded(reader->excluded, name))
		return wrong(reader, "%s belongs to the command line, not into a file", name);
	if (!note_line(reader, name))
		return false;
	if (options_set(reader->program, name, value, message))
		return true;
	/* "--port: ..." */
	return wrong(reader, "%s", message + (strncmp(message, "--", 2) == 0 ? 2 : 0));
}

bool config_parse(const struct options_program *program, const char *const *excluded,
		  const char *path, char *text, size_t length, char message[OPTIONS_MESSAGE_SIZE])
{
	struct reader reader = {program, excluded, path, 0, NULL, message};
	char *line = text, *end = text + length;
	bool good = true;

	reader.set_in = calloc(program->spec_count + 1, sizeof(*reader.set_in));
	if (!reader.set_in)
		return wrong(&reader, "no memory");
	while (good && line < end) {
		char *newline = memchr(line, '\n', (size_t)(end - line));
		char *stop = newline ? newline : end;

		reader.line++;
		*stop = '\0';
		if (strlen(line) != (size_t)(stop - line))
			good = wrong(&reader, "a zero byte: this is no text file");
		else
			good = parse_line(&reader, line);
		line = stop + 1;
	}
	free(reader.set_in);
	return good;
}

/* Returns the number of bytes; -1 with errno. */
static ssize_t read_all(const char *path, char *to, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), errnum;
	ssize_t length = 0, got = fd < 0 ? -1 : 1;

	while (got > 0 && (size_t)length < room) {
		do {
			got = read(fd, to + length, room - (size_t)length);
		} while (got < 0 && errno == EINTR);
		length += got > 0 ? got : 0;
	}
	errnum = errno;
	if (fd >= 0)
		close(fd);
	errno = errnum;
	return got < 0 ? -1 : length;
}

bool config_read(const struct options_program *program, const char *const *excluded,
		 const char *path, char **text, char message[OPTIONS_MESSAGE_SIZE])
{
	char *bytes = malloc(CONFIG_SIZE_MAX + 1);
	ssize_t length = bytes ? read_all(path, bytes, CONFIG_SIZE_MAX) : -1;

	*text = bytes;
	if (length < 0)
		snprintf(message, OPTIONS_MESSAGE_SIZE, "cannot read %s: %s", path,
			 strerror(errno));
	else if (length == CONFIG_SIZE_MAX)
		snprintf(message, OPTIONS_MESSAGE_SIZE,
			 "%s is longer than 1MiB: this is no configuration file", path);
	else {
		bytes[length] = '\0';
		return config_parse(program, excluded, path, bytes, (size_t)length, message);
	}
	return false;
}

/* ------------------------------------------------------------------------------------------
 * Writing
 */

static void write_string(FILE *file, const char *name, const char *value)
{
	if (!*value) {
		fprintf(file, "# %s = \"\"\n", name);
		return;
	}
	fprintf(file, "%s = ", name);
	if (!value[strcspn(value, " \t\r\"'#\\")]) {
		fprintf(file, "%s\n", value);
		return;
	}
	fputc('"', file);
	for (; *value; value++)
		fprintf(file, "%s%c", *value == '"' || *value == '\\' ? "\\" : "", *value);
	fputs("\"\n", file);
}

static void write_option(FILE *file, const struct option_spec *spec)
{
	char text[SIZE_TEXT_LENGTH];

	switch (spec->kind) {
	case OPTION_KIND_FLAG:
		fprintf(file, "%s = %s\n", spec->name, *spec->to.flag ? "yes" : "no");
		break;
	case OPTION_KIND_INT:
		fprintf(file, "%s = %" PRId64 "\n", spec->name, *spec->to.integer);
		break;
	case OPTION_KIND_UINT:
		fprintf(file, "%s = %" PRIu64 "\n", spec->name, *spec->to.number);
		break;
	case OPTION_KIND_SIZE:
		fprintf(file, "%s = %s\n", spec->name, size_format(*spec->to.number, text));
		break;
	case OPTION_KIND_DURATION:
		fprintf(file, "%s = %s\n", spec->name, duration_format(*spec->to.number, text));
		break;
	case OPTION_KIND_DOUBLE:
		fprintf(file, "%s = %.17g\n", spec->name, *spec->to.real);
		break;
	case OPTION_KIND_STRING:
		write_string(file, spec->name, *spec->to.string ? *spec->to.string : "");
		break;
	case OPTION_KIND_CHOICE:
		fprintf(file, "%s = %s\n", spec->name, spec->choices[*spec->to.choice]);
		break;
	}
}

void config_write(const struct options_program *program, const char *const *excluded, FILE *file)
{
	for (size_t i = 0; i < program->spec_count; i++) {
		if (!is_excluded(excluded, program->specs[i].name))
			write_option(file, &program->specs[i]);
	}
}
