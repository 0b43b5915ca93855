/*
 * What --help prints, made from the table:
 *
 *	usage: fabric-perf [OPTION]... serve|run [ADDRESS]
 *
 *	Measures a fabric provider.
 *
 *	options:
 *	  -s, --size SIZE      bytes of an operation (default 8)
 *	      --depth N        operations in flight (default 1)
 *
 *	examples:
 *	  ...
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/options.h"
#include "base/size.h"

#define HELP_COLUMN   27 /* where the explanations begin */
#define WIDTH_NARROW  60 /* below it they have lines of their own, */
#define NARROW_COLUMN 8	 /* and begin here */
#define WIDTH_LEAST   40
#define WIDTH_MOST    100
#define LEFT_SIZE     160
#define DEFAULT_SIZE  160
#define LINE_SIZE     512
#define USAGE_INDENT  7 /* behind "usage: " */

int options_terminal_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize window;
	int width = 80;

	if (columns != NULL && atoi(columns) > 0)
		width = atoi(columns);
	else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		width = window.ws_col;
	if (width < WIDTH_LEAST)
		return WIDTH_LEAST;
	return width > WIDTH_MOST ? WIDTH_MOST : width;
}

/* Prints words from `column` on, wrapped at `width`, each new line indented by `indent`. */
static void print_wrapped(FILE *file, const char *text, int column, int indent, int width)
{
	bool first = true;

	while (*text != '\0') {
		int length = (int)strcspn(text, " \n");

		if (!first && column + 1 + length > width) {
			fprintf(file, "\n%*s", indent, "");
			column = indent;
			first = true;
		}
		column += fprintf(file, "%s%.*s", first ? "" : " ", length, text);
		first = false;
		text += length;
		while (isspace((unsigned char)*text))
			text++;
	}
	fputc('\n', file);
}

static const char *metavar_of(const struct option_spec *spec)
{
	if (spec->metavar != NULL)
		return spec->metavar;
	switch (spec->kind) {
	case OPTION_KIND_FLAG:
		return NULL;
	case OPTION_KIND_INT:
	case OPTION_KIND_UINT:
		return "N";
	case OPTION_KIND_SIZE:
		return "SIZE";
	case OPTION_KIND_DURATION:
		return "TIME";
	case OPTION_KIND_DOUBLE:
		return "NUMBER";
	case OPTION_KIND_STRING:
		return "TEXT";
	case OPTION_KIND_CHOICE:
		return "WORD";
	}
	return NULL;
}

/* The present value as text, "" when there is nothing worth showing. */
static void format_default(const struct option_spec *spec, char text[DEFAULT_SIZE])
{
	text[0] = '\0';
	switch (spec->kind) {
	case OPTION_KIND_FLAG:
		if (*spec->to.flag)
			snprintf(text, DEFAULT_SIZE, "yes");
		break;
	case OPTION_KIND_INT:
		snprintf(text, DEFAULT_SIZE, "%" PRId64, *spec->to.integer);
		break;
	case OPTION_KIND_UINT:
		snprintf(text, DEFAULT_SIZE, "%" PRIu64, *spec->to.number);
		break;
	case OPTION_KIND_SIZE:
		size_format(*spec->to.number, text);
		break;
	case OPTION_KIND_DURATION:
		duration_format(*spec->to.number, text);
		break;
	case OPTION_KIND_DOUBLE:
		snprintf(text, DEFAULT_SIZE, "%g", *spec->to.real);
		break;
	case OPTION_KIND_STRING:
		if (*spec->to.string != NULL)
			snprintf(text, DEFAULT_SIZE, "%s", *spec->to.string);
		break;
	case OPTION_KIND_CHOICE:
		if (*spec->to.choice >= 0)
			snprintf(text, DEFAULT_SIZE, "%s", spec->choices[*spec->to.choice]);
		break;
	}
}

/* The explanation, the words to choose from, and the default; unless the explanation tells it, for
 * where the variable holds something that stands for another value. */
static void format_explanation(const struct option_spec *spec, char *text, size_t size)
{
	char value[DEFAULT_SIZE];
	size_t used = (size_t)snprintf(text, size, "%s", spec->help);

	for (int i = 0; spec->choices != NULL && spec->choices[i] != NULL && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s %s", i == 0 ? ":" : ",",
					 spec->choices[i]);
	if (strstr(spec->help, "(default ") != NULL)
		return;
	format_default(spec, value);
	if (value[0] != '\0' && used < size)
		snprintf(text + used, size - used, " (default %s)", value);
}

static void print_option(FILE *file, const char *left, const char *explanation, int width)
{
	int begin = width < WIDTH_NARROW ? NARROW_COLUMN : HELP_COLUMN;
	int column = fprintf(file, "%s", left);

	if (column > begin - 2) {
		fputc('\n', file);
		column = 0;
	}
	fprintf(file, "%*s", begin - column, "");
	print_wrapped(file, explanation, begin, begin, width);
}

static void print_spec(FILE *file, const struct option_spec *spec, int width)
{
	const char *metavar = metavar_of(spec);
	char letter[8] = "   ";
	char left[LEFT_SIZE];
	char explanation[1024];

	if (spec->letter != 0)
		snprintf(letter, sizeof(letter), "-%c,", spec->letter);
	snprintf(left, sizeof(left), "  %s --%s%s%s", letter, spec->name,
		 metavar != NULL ? " " : "", metavar != NULL ? metavar : "");
	format_explanation(spec, explanation, sizeof(explanation));
	print_option(file, left, explanation, width);
}

static void print_usage(FILE *file, const struct options_program *program, int width)
{
	int column = fprintf(file, "usage: %s [OPTION]...", program->name);

	if (program->arguments == NULL) {
		fputc('\n', file);
		return;
	}
	fputc(' ', file);
	print_wrapped(file, program->arguments, column + 1, USAGE_INDENT, width);
}

/* As it is, for commands are there to be copied; but exit codes are a sentence. */
static void print_footer(FILE *file, const char *text, int width)
{
	char line[LINE_SIZE];

	while (*text != '\0') {
		int length = (int)strcspn(text, "\n");

		if (strncmp(text, "exit codes:", 11) == 0) {
			snprintf(line, sizeof(line), "%.*s", length, text);
			print_wrapped(file, line, 0, 2, width);
		} else {
			fprintf(file, "%.*s\n", length, text);
		}
		text += length + (text[length] == '\n');
	}
}

void options_help(const struct options_program *program, FILE *file, int width)
{
	bool h_is_free = true;

	print_usage(file, program, width);
	if (program->description != NULL) {
		fputc('\n', file);
		print_wrapped(file, program->description, 0, 0, width);
	}
	fprintf(file, "\noptions:\n");
	for (size_t i = 0; i < program->spec_count; i++) {
		print_spec(file, &program->specs[i], width);
		if (program->specs[i].letter == 'h')
			h_is_free = false;
	}
	print_option(file, h_is_free ? "  -h, --help" : "      --help", "show this and exit",
		     width);
	print_option(file, "      --version", "show the version and exit", width);
	if (program->examples == NULL)
		return;
	fprintf(file, "\n%s", program->examples[0] == ' ' ? "examples:\n" : "");
	print_footer(file, program->examples, width);
}
