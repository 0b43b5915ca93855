/*
 * The parser. Everything that has a value goes through set_value(), whether it came by its long
 * name, its letter, or options_set(); so that all of them understand and refuse the same.
 * What --help prints is made in options_help.c.
 */
#include "base/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/size.h"
#include "base/version.h"

/* Names up to this length take part in the search for the nearest one. */
#define NAME_LENGTH_MAX 40

__attribute__((format(printf, 2, 3))) static bool wrong(char *message, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(message, OPTIONS_MESSAGE_SIZE, format, args);
	va_end(args);
	return false;
}

static const struct option_spec *find_by_name(const struct options_program *program,
					      const char *name, size_t length)
{
	for (size_t i = 0; i < program->spec_count; i++) {
		const struct option_spec *spec = &program->specs[i];

		if (strlen(spec->name) == length && memcmp(spec->name, name, length) == 0)
			return spec;
	}
	return NULL;
}

static const struct option_spec *find_by_letter(const struct options_program *program, char letter)
{
	for (size_t i = 0; i < program->spec_count; i++) {
		if (program->specs[i].letter == letter)
			return &program->specs[i];
	}
	return NULL;
}

/* How many characters must be inserted, deleted or replaced to make one name of the other. */
static int edit_distance(const char *a, size_t a_length, const char *b)
{
	int row[NAME_LENGTH_MAX + 1];
	size_t b_length = strlen(b);

	if (a_length > NAME_LENGTH_MAX || b_length > NAME_LENGTH_MAX)
		return NAME_LENGTH_MAX;
	for (size_t j = 0; j <= b_length; j++)
		row[j] = (int)j;
	for (size_t i = 1; i <= a_length; i++) {
		int diagonal = row[0];

		row[0] = (int)i;
		for (size_t j = 1; j <= b_length; j++) {
			int replaced = diagonal + (a[i - 1] != b[j - 1]);
			int shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];

			diagonal = row[j];
			row[j] = replaced < shorter + 1 ? replaced : shorter + 1;
		}
	}
	return row[b_length];
}

/* The option that was probably meant: one that begins so, or the nearest if it is near; or NULL. */
static const char *find_nearest(const struct options_program *program, const char *name,
				size_t length)
{
	static const char *const always[] = {"help", "version"};
	const char *nearest = NULL;
	int least = length <= 3 ? 2 : 3;

	for (size_t i = 0; i < program->spec_count + OPTIONS_COUNT(always); i++) {
		const char *candidate = i < program->spec_count ? program->specs[i].name
								: always[i - program->spec_count];
		int distance = edit_distance(name, length, candidate);

		if (length >= 2 && strncmp(candidate, name, length) == 0)
			distance = 0;
		if (distance < least) {
			least = distance;
			nearest = candidate;
		}
	}
	return nearest;
}

static bool unknown_name(const struct options_program *program, const char *name, size_t length,
			 char *message)
{
	const char *nearest = find_nearest(program, name, length);

	if (nearest != NULL)
		return wrong(message, "unknown option --%.*s; did you mean --%s?", (int)length,
			     name, nearest);
	return wrong(message, "unknown option --%.*s; --help lists all", (int)length, name);
}

static bool set_flag(const struct option_spec *spec, const char *text, char *message)
{
	static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

	for (size_t i = 0; i < OPTIONS_COUNT(words); i++) {
		if (strcasecmp(text, words[i]) == 0) {
			*spec->to.flag = i % 2 == 1;
			return true;
		}
	}
	return wrong(message, "--%s: '%s' is neither yes nor no", spec->name, text);
}

static bool set_int(const struct option_spec *spec, const char *text, char *message)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end != '\0' || errno == ERANGE)
		return wrong(message, "--%s: '%s' is not a whole number", spec->name, text);
	if ((spec->int_min != 0 || spec->int_max != 0) &&
	    (value < spec->int_min || value > spec->int_max))
		return wrong(message, "--%s: %lld is not between %" PRId64 " and %" PRId64,
			     spec->name, value, spec->int_min, spec->int_max);
	*spec->to.integer = value;
	return true;
}

/* The limits in the option's own unit. */
static const char *format_number(const struct option_spec *spec, uint64_t value,
				 char text[SIZE_TEXT_LENGTH])
{
	if (spec->kind == OPTION_KIND_SIZE)
		return size_format(value, text);
	if (spec->kind == OPTION_KIND_DURATION)
		return duration_format(value, text);
	snprintf(text, SIZE_TEXT_LENGTH, "%" PRIu64, value);
	return text;
}

static bool parse_uint(const char *text, uint64_t *value)
{
	char *end;

	/* strtoull takes "-1" for the largest number, so only digits may begin. */
	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return *end == '\0' && errno != ERANGE;
}

static bool set_number(const struct option_spec *spec, const char *text, char *message)
{
	char low[SIZE_TEXT_LENGTH], high[SIZE_TEXT_LENGTH];
	uint64_t value = 0;

	if (spec->kind == OPTION_KIND_SIZE) {
		if (size_parse(text, &value) != RMR_OK)
			return wrong(message, "--%s: %s", spec->name, error_chain());
	} else if (spec->kind == OPTION_KIND_DURATION) {
		if (duration_parse(text, &value) != RMR_OK)
			return wrong(message, "--%s: %s", spec->name, error_chain());
	} else if (!parse_uint(text, &value)) {
		return wrong(message, "--%s: '%s' is not a whole number of 0 or more", spec->name,
			     text);
	}
	if (value < spec->min)
		return wrong(message, "--%s: '%s' is less than %s", spec->name, text,
			     format_number(spec, spec->min, low));
	if (spec->max != 0 && value > spec->max)
		return wrong(message, "--%s: '%s' is more than %s", spec->name, text,
			     format_number(spec, spec->max, high));
	*spec->to.number = value;
	return true;
}

static bool set_double(const struct option_spec *spec, const char *text, char *message)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !isfinite(value))
		return wrong(message, "--%s: '%s' is not a number", spec->name, text);
	if ((spec->real_min != 0.0 || spec->real_max != 0.0) &&
	    (value < spec->real_min || value > spec->real_max))
		return wrong(message, "--%s: %s is not between %g and %g", spec->name, text,
			     spec->real_min, spec->real_max);
	*spec->to.real = value;
	return true;
}

static bool set_string(const struct option_spec *spec, const char *text,
		       char message[OPTIONS_MESSAGE_SIZE])
{
	const char *fault = spec->fault ? spec->fault(text) : NULL;

	if (fault) {
		snprintf(message, OPTIONS_MESSAGE_SIZE, "--%s: %s", spec->name, fault);
		return false;
	}
	*spec->to.string = text;
	return true;
}

static bool set_choice(const struct option_spec *spec, const char *text, char *message)
{
	size_t used;

	for (int i = 0; spec->choices[i] != NULL; i++) {
		if (strcmp(spec->choices[i], text) == 0) {
			*spec->to.choice = i;
			return true;
		}
	}
	wrong(message, "--%s: '%s' is not one of", spec->name, text);
	for (int i = 0; spec->choices[i] != NULL; i++) {
		used = strlen(message);
		snprintf(message + used, OPTIONS_MESSAGE_SIZE - used, "%s %s", i == 0 ? "" : ",",
			 spec->choices[i]);
	}
	return false;
}

static bool set_value(const struct option_spec *spec, const char *text, char *message)
{
	bool done = false;

	switch (spec->kind) {
	case OPTION_KIND_FLAG:
		done = set_flag(spec, text, message);
		break;
	case OPTION_KIND_INT:
		done = set_int(spec, text, message);
		break;
	case OPTION_KIND_UINT:
	case OPTION_KIND_SIZE:
	case OPTION_KIND_DURATION:
		done = set_number(spec, text, message);
		break;
	case OPTION_KIND_DOUBLE:
		done = set_double(spec, text, message);
		break;
	case OPTION_KIND_STRING:
		done = set_string(spec, text, message);
		break;
	case OPTION_KIND_CHOICE:
		done = set_choice(spec, text, message);
		break;
	}
	if (done && spec->given != NULL)
		*spec->given = true;
	return done;
}

bool options_set(const struct options_program *program, const char *name, const char *text,
		 char message[OPTIONS_MESSAGE_SIZE])
{
	const struct option_spec *spec = find_by_name(program, name, strlen(name));

	if (spec == NULL)
		return unknown_name(program, name, strlen(name), message);
	return set_value(spec, text, message);
}

/* Where the parser stands. */
struct cursor {
	const struct options_program *program;
	char **argv;
	int argc;
	int at; /* the argument that is being looked at */
	char *message;
};

/* The argument after the present one, which becomes the present one; NULL when there is none. */
static const char *next_value(struct cursor *cursor)
{
	if (cursor->at + 1 >= cursor->argc)
		return NULL;
	return cursor->argv[++cursor->at];
}

bool option_takes(const struct option_spec *spec, const char *word)
{
	if (spec->kind != OPTION_KIND_FLAG)
		return true;
	return spec->takes_word && word && (!strcmp(word, "true") || !strcmp(word, "false"));
}

/* --name, --name value, --name=value. `name` is what follows the dashes. */
static enum options_outcome parse_long(struct cursor *cursor, const char *name)
{
	const char *equals = strchr(name, '=');
	size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
	const struct option_spec *spec = find_by_name(cursor->program, name, length);
	const char *value = equals != NULL ? equals + 1 : NULL;

	if (spec == NULL) {
		if (strcmp(name, "help") == 0)
			return OPTIONS_HELP;
		if (strcmp(name, "version") == 0)
			return OPTIONS_VERSION;
		unknown_name(cursor->program, name, length, cursor->message);
		return OPTIONS_WRONG;
	}
	if (value == NULL &&
	    option_takes(spec, cursor->at + 1 < cursor->argc ? cursor->argv[cursor->at + 1] : NULL))
		value = next_value(cursor);
	else if (value == NULL && spec->kind == OPTION_KIND_FLAG)
		value = "yes";
	if (value == NULL) {
		wrong(cursor->message, "--%s: a value must follow", spec->name);
		return OPTIONS_WRONG;
	}
	return set_value(spec, value, cursor->message) ? OPTIONS_OK : OPTIONS_WRONG;
}

/* -j, -jv, -n value, -nvalue. `letters` is what follows the dash, at least one character. */
static enum options_outcome parse_short(struct cursor *cursor, const char *letters)
{
	for (const char *letter = letters; *letter != '\0'; letter++) {
		const struct option_spec *spec = find_by_letter(cursor->program, *letter);
		const char *value;

		if (spec == NULL) {
			if (*letter == 'h')
				return OPTIONS_HELP;
			wrong(cursor->message, "unknown option -%c; --help lists all", *letter);
			return OPTIONS_WRONG;
		}
		if (spec->kind == OPTION_KIND_FLAG) {
			set_value(spec, "yes", cursor->message);
			continue;
		}
		value = letter[1] != '\0' ? letter + 1 : next_value(cursor);
		if (value == NULL) {
			wrong(cursor->message, "-%c (--%s): a value must follow", *letter,
			      spec->name);
			return OPTIONS_WRONG;
		}
		return set_value(spec, value, cursor->message) ? OPTIONS_OK : OPTIONS_WRONG;
	}
	return OPTIONS_OK;
}

static enum options_outcome check_arguments(const struct options_program *program,
					    struct options_result *result)
{
	const char *names = program->arguments != NULL ? program->arguments : "";

	if (result->argument_count > program->max_arguments) {
		wrong(result->message, "unexpected argument '%s'",
		      result->arguments[program->max_arguments]);
		return OPTIONS_WRONG;
	}
	if (result->argument_count < program->min_arguments) {
		wrong(result->message, "missing argument; usage: %s [OPTION]... %s", program->name,
		      names);
		return OPTIONS_WRONG;
	}
	return OPTIONS_OK;
}

enum options_outcome options_parse(const struct options_program *program, int argc, char **argv,
				   struct options_result *result)
{
	struct cursor cursor = {program, argv, argc, 1, result->message};
	bool only_arguments = false;

	result->message[0] = '\0';
	result->argument_count = 0;
	result->arguments = argv + 1;
	for (; cursor.at < argc; cursor.at++) {
		char *text = argv[cursor.at];
		enum options_outcome outcome = OPTIONS_OK;

		if (only_arguments || text[0] != '-' || text[1] == '\0')
			/* Never ahead of the cursor: nothing unread is overwritten. */
			result->arguments[result->argument_count++] = text;
		else if (strcmp(text, "--") == 0)
			only_arguments = true;
		else if (text[1] == '-')
			outcome = parse_long(&cursor, text + 2);
		else
			outcome = parse_short(&cursor, text + 1);
		if (outcome != OPTIONS_OK)
			return outcome;
	}
	return check_arguments(program, result);
}

void options_parse_or_exit(const struct options_program *program, int argc, char **argv,
			   struct options_result *result)
{
	switch (options_parse(program, argc, argv, result)) {
	case OPTIONS_OK:
		return;
	case OPTIONS_HELP:
		options_help(program, stdout, options_terminal_width());
		exit(0);
	case OPTIONS_VERSION:
		printf("%s (Remora) %s\n", program->name, REMORA_VERSION);
		exit(0);
	case OPTIONS_WRONG:
		fprintf(stderr, "%s: %s\n", program->name, result->message);
		exit(2);
	}
}

void options_fail(const struct options_program *program, const char *format, ...)
{
	char message[OPTIONS_MESSAGE_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	fprintf(stderr, "%s: %s\n", program->name, message);
	exit(2);
}
