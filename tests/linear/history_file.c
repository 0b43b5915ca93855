/*
 * Histories in files: a first line that tells how many processes there are and how long the longest
 * segment is, then one operation a line, process by process, its fields as numbers in the order of
 * struct history_op.
 */
#include <errno.h>
#include <inttypes.h>

#include "history.h"

#define FIRST_LINE "remora-history 1 processes %" PRIu32 " capacity %" PRIu32 "\n"
#define MOST	   10000000u /* operations of a process, and processes, that are believed */

static bool save_segment(FILE *file, const struct history_segment *segment)
{
	uint32_t count = atomic_load(&segment->count);

	for (uint32_t i = 0; i < count; i++) {
		const struct history_op *op = &segment->ops[i];

		if (fprintf(file,
			    "%" PRIu32 " %" PRIu32 " %u %u %d %" PRIu64 " %" PRIu64 " %" PRIu64
			    " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
			    op->process, op->key, op->kind, op->found_kind, op->status,
			    op->argument, op->expected, op->found, op->version, op->invoke_ns,
			    (uint64_t)op->return_ns) < 0)
			return false;
	}
	return true;
}

bool history_save(const struct history *history, const char *path)
{
	FILE *file = fopen(path, "w");
	uint32_t capacity = 0;
	bool well = file != NULL;

	if (!file)
		return false;
	for (uint32_t i = 0; i < history->processes; i++)
		if (history->segments[i].count > capacity)
			capacity = history->segments[i].count;
	well = fprintf(file, FIRST_LINE, history->processes, capacity) > 0;
	for (uint32_t i = 0; well && i < history->processes; i++)
		well = save_segment(file, &history->segments[i]);
	return fclose(file) == 0 && well;
}

static bool parse(const char *line, struct history_op *op)
{
	uint64_t return_ns;
	unsigned kind, found_kind;
	int status, end = 0;

	if (sscanf(line,
		   "%" SCNu32 " %" SCNu32 " %u %u %d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64 " %" SCNu64 " %n",
		   &op->process, &op->key, &kind, &found_kind, &status, &op->argument,
		   &op->expected, &op->found, &op->version, &op->invoke_ns, &return_ns,
		   &end) != 11 ||
	    line[end] || kind >= HISTORY_KINDS || found_kind > HISTORY_FOUND_NUMBER)
		return false;
	op->kind = (uint8_t)kind;
	op->found_kind = (uint8_t)found_kind;
	op->status = (int16_t)status;
	op->return_ns = return_ns;
	return true;
}

static struct history *load(FILE *file, unsigned *line)
{
	struct history *history;
	uint32_t processes, capacity;
	char text[512];

	*line = 1;
	errno = 0;
	if (!fgets(text, sizeof(text), file) ||
	    sscanf(text, FIRST_LINE, &processes, &capacity) != 2 || processes > MOST ||
	    capacity > MOST)
		return NULL;
	history = history_create(processes, capacity);
	while (history && fgets(text, sizeof(text), file)) {
		struct history_op op = {0};

		++*line;
		if (!parse(text, &op) || op.process >= processes || !history_add(history, &op)) {
			history_destroy(history);
			errno = 0;
			return NULL;
		}
	}
	return history;
}

struct history *history_load(const char *path, unsigned *line)
{
	FILE *file = fopen(path, "r");
	struct history *history;

	*line = 0;
	if (!file)
		return NULL;
	history = load(file, line);
	fclose(file);
	return history;
}
