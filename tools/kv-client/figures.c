/*
 * The server's figures: lines "name value", read once and found by name. See client.h.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client.h"

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct figure *)a)->name, ((const struct figure *)b)->name);
}

/* Takes the text apart, in place. Lines that are no figures are skipped. */
static int read_lines(struct figures *figures)
{
	size_t lines = 0;
	char *rest = NULL;

	for (const char *c = figures->text; *c; c++)
		lines += *c == '\n';
	figures->all = calloc(lines + 1, sizeof(*figures->all));
	if (!figures->all)
		return KV_INTERNAL;
	for (char *line = strtok_r(figures->text, "\n", &rest); line && figures->count < lines + 1;
	     line = strtok_r(NULL, "\n", &rest)) {
		char *blank = strchr(line, ' '), *end;
		uint64_t value;

		if (!blank)
			continue;
		*blank = '\0';
		value = strtoull(blank + 1, &end, 10);
		figures->all[figures->count++] =
			(struct figure){line, value, *end ? blank + 1 : NULL};
	}
	qsort(figures->all, figures->count, sizeof(*figures->all), compare);
	return KV_OK;
}

int figures_take(struct session *session, struct figures *figures)
{
	int status;

	*figures = (struct figures){0};
	status = ask_stats(session, &figures->text);
	if (status != KV_OK) {
		figures->text = NULL;
		return status;
	}
	figures->taken_ns = clock_now_ns();
	status = read_lines(figures);
	if (status != KV_OK)
		figures_free(figures);
	return status;
}

void figures_free(struct figures *figures)
{
	kv_free(figures->text);
	free(figures->all);
	*figures = (struct figures){0};
}

static uint64_t find_value(const struct figures *figures, const char *name)
{
	struct figure wanted = {.name = name};
	const struct figure *found;

	if (!figures->count)
		return 0;
	found = bsearch(&wanted, figures->all, figures->count, sizeof(wanted), compare);
	return found ? found->value : 0;
}

uint64_t figures_value(const struct figures *figures, const char *format, ...)
{
	char name[96];
	va_list args;

	va_start(args, format);
	vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	return find_value(figures, name);
}

double frame_rate(const struct frame *frame, const char *format, ...)
{
	uint64_t then, now, span_ns = frame->now.taken_ns - frame->then.taken_ns;
	char name[96];
	va_list args;

	va_start(args, format);
	vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	then = find_value(&frame->then, name);
	now = find_value(&frame->now, name);
	/* A server that was started again counts from 0. */
	if (!frame->then.text || !span_ns || now < then)
		return 0;
	return (double)(now - then) * 1e9 / (double)span_ns;
}
