/*
 * Progress: one line on a terminal that tells how far something long has come.
 *
 *	struct progress progress;
 *
 *	progress_begin(&progress, "writing photo.jpg", size, PROGRESS_BYTES);
 *	while (...)
 *		progress_show(&progress, done);
 *	progress_end(&progress);
 *
 *	writing photo.jpg [=========>          ]  48%  31.2MiB  410MiB/s
 *
 * It goes to stderr, and only if that is a terminal; otherwise all of this does nothing. Drawn at
 * most ten times a second, so that calling it costs a look at the clock; and nothing is drawn
 * before a quarter of a second has passed, so what is quick leaves no trace. The end wipes the
 * line. It adapts to the terminal's width, down to the percentage alone. One thread.
 */
#ifndef TOOLS_COMMON_PROGRESS_H
#define TOOLS_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum progress_unit {
	PROGRESS_BYTES,	  /* 31.2MiB  410MiB/s */
	PROGRESS_COUNT,	  /* 31.2M  410k/s */
	PROGRESS_SECONDS, /* `done` and `total` are nanoseconds; no rate */
};

struct progress {
	const char *title; /* not copied */
	uint64_t total;	   /* 0: not known, only the amount and the rate are shown */
	enum progress_unit unit;
	uint64_t start_ns;
	uint64_t next_ns; /* when it is drawn next; UINT64_MAX: never */
	bool is_drawn;
};

void progress_begin(struct progress *progress, const char *title, uint64_t total,
		    enum progress_unit unit);
void progress_show(struct progress *progress, uint64_t done);
/* Wipes the line. Legal at any time after the beginning, and twice. */
void progress_end(struct progress *progress);

#define PROGRESS_LINE 256

/* Writes the line that is drawn after `elapsed_ns`, at most `width` characters of it; pure. */
void progress_format(const struct progress *progress, uint64_t done, uint64_t elapsed_ns, int width,
		     char line[PROGRESS_LINE]);

#endif
