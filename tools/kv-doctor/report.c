/*
 * Findings: kept in order, and shown for people or as JSON.
 *
 *	Kernel
 *	  OK    ib_core     loaded
 *	  FAIL  ib_uverbs   not loaded, and ...
 *	        fix:        modprobe ib_uverbs
 *
 * On a narrow terminal the sentence stands below the check's name. Lines break between words; a
 * word that is longer than a line stays whole, for it is something to copy.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define MARGIN	   8  /* two blanks, the verdict, two blanks */
#define NARROW	   66 /* below this the names have no column of their own */
#define NAME_MAX_W 30

static const char *const verdict_names[] = {"OK", "WARN", "FAIL", "n/a"};
static const char *const verdict_colours[] = {"\033[32m", "\033[33m", "\033[31m", "\033[2m"};

/* ------------------------------------------------------------------------------------------
 * Keeping
 */

struct finding *report_add(struct report *report, const char *group, const char *check,
			   enum verdict verdict, const char *format, ...)
{
	struct finding *finding;
	va_list arguments;

	if (report->count == report->room) {
		size_t room = report->room ? 2 * report->room : 32;
		struct finding *grown = realloc(report->findings, room * sizeof(*grown));

		if (!grown) {
			fputs("kv-doctor: no memory\n", stderr);
			exit(1);
		}
		report->findings = grown;
		report->room = room;
	}
	finding = &report->findings[report->count++];
	*finding = (struct finding){.group = group, .verdict = verdict};
	snprintf(finding->check, sizeof(finding->check), "%s", check);
	va_start(arguments, format);
	vsnprintf(finding->text, sizeof(finding->text), format, arguments);
	va_end(arguments);
	return finding;
}

void report_fix(struct finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(finding->fix, sizeof(finding->fix), format, arguments);
	va_end(arguments);
}

void report_free(struct report *report)
{
	free(report->findings);
	*report = (struct report){0};
}

/* ------------------------------------------------------------------------------------------
 * For people
 */

/* Writes words into lines that begin in column `indent`; the first begins where the cursor is, in
 * `column`. */
static void write_wrapped(FILE *file, const char *text, int column, int indent, int width)
{
	bool fresh = true;

	while (*text) {
		int length = (int)strcspn(text, " ");

		if (!fresh && column + 1 + length > width) {
			fprintf(file, "\n%*s", indent, "");
			column = indent;
			fresh = true;
		}
		if (!fresh) {
			fputc(' ', file);
			column++;
		}
		/* Error texts come from all sorts of places: nothing in them moves the cursor. */
		for (int i = 0; i < length; i++)
			fputc((unsigned char)text[i] < ' ' ? '?' : text[i], file);
		column += length;
		fresh = false;
		text += length;
		text += strspn(text, " ");
	}
	fputc('\n', file);
}

static int name_width(const struct report *report)
{
	int most = 0;

	for (size_t i = 0; i < report->count; i++) {
		int length = (int)strlen(report->findings[i].check);

		if (length > most && length <= NAME_MAX_W)
			most = length;
	}
	return most;
}

static void print_finding(const struct finding *finding, FILE *file, int width, int names,
			  bool colours)
{
	int indent = width < NARROW ? MARGIN : MARGIN + names + 2;

	fprintf(file, "  %s%-4s%s  ", colours ? verdict_colours[finding->verdict] : "",
		verdict_names[finding->verdict], colours ? "\033[0m" : "");
	if (width < NARROW) {
		write_wrapped(file, finding->check, MARGIN, MARGIN, width);
		fprintf(file, "%*s", indent, "");
	} else {
		fprintf(file, "%-*s", names + 2, finding->check);
		if ((int)strlen(finding->check) > names)
			fprintf(file, "\n%*s", indent, "");
	}
	write_wrapped(file, finding->text, indent, indent, width);
	if (!finding->fix[0])
		return;
	fprintf(file, "%*s%sfix:%s ", indent, "", colours ? "\033[1m" : "",
		colours ? "\033[0m" : "");
	write_wrapped(file, finding->fix, indent + 5, indent + 5, width);
}

void report_print(const struct report *report, FILE *file, int width, bool colours)
{
	int names = name_width(report);
	const char *group = "";

	for (size_t i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		if (strcmp(group, finding->group) != 0) {
			group = finding->group;
			fprintf(file, "%s%s%s%s\n", i ? "\n" : "", colours ? "\033[1m" : "", group,
				colours ? "\033[0m" : "");
		}
		print_finding(finding, file, width, names, colours);
	}
}

/* ------------------------------------------------------------------------------------------
 * JSON
 */

static void write_string(FILE *file, const char *text)
{
	fputc('"', file);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(file, "\\%c", c);
		else if (c < ' ' || c >= 0x7f)
			fprintf(file, "\\u%04x", c);
		else
			fputc(c, file);
	}
	fputc('"', file);
}

void report_print_json(const struct report *report, FILE *file)
{
	for (size_t i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		fputs("{\"group\": ", file);
		write_string(file, finding->group);
		fputs(", \"check\": ", file);
		write_string(file, finding->check);
		fputs(", \"status\": ", file);
		write_string(file, verdict_names[finding->verdict]);
		fputs(", \"finding\": ", file);
		write_string(file, finding->text);
		fputs(", \"fix\": ", file);
		write_string(file, finding->fix);
		fputs("}\n", file);
	}
}
