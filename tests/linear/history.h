/*
 * A history: what several processes asked of a store, what they were told, and when.
 *
 * It lies in memory that is shared by the processes of a test: make it before they are forked. Each
 * process has a segment of its own, to which it alone appends, so that there is no lock that a
 * process could die with. An operation is written down before it begins, as one that never
 * returned, and completed afterwards; return_ns is stored last. So a process may be killed at any
 * moment: what it leaves is a valid history, whose last operation may have happened or not.
 *
 *	struct history_op *op = history_begin(history, process, &asked);
 *	status = kv_client_put(...);
 *	op->version = ...;
 *	history_end(op, status);
 *
 * Times are those of CLOCK_MONOTONIC, which mean the same in all processes of a host.
 *
 * A history can be kept in a file, one operation a line, and be looked at again: linear_replay.
 */
#ifndef TESTS_LINEAR_HISTORY_H
#define TESTS_LINEAR_HISTORY_H

#include <remora/kv.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define HISTORY_NEVER UINT64_MAX

enum history_kind {
	HISTORY_GET,
	HISTORY_PUT,
	HISTORY_PUT_IF_ABSENT,
	HISTORY_CAS, /* put-if-version */
	HISTORY_DELETE,
	HISTORY_DELETE_IF_VERSION,
	HISTORY_INCR,
	HISTORY_COUNTER_CAS,
	HISTORY_KINDS,
};

/* What a get tells of what it found. */
enum history_found {
	HISTORY_FOUND_SOMETHING, /* nothing: as of exists and stat */
	HISTORY_FOUND_VALUE,
	HISTORY_FOUND_NUMBER,
};

struct history_op {
	uint32_t process;
	uint32_t key;
	uint8_t kind;
	uint8_t found_kind; /* of a get that found something */
	int16_t status;	    /* enum kv_status */
	/* What was asked: the id of the value to put, which no other put of the history has; the
	 * delta; or the number to set. And the version or number that is expected. */
	uint64_t argument;
	uint64_t expected;
	/* What was told: the id of the value, or the number, that a get found; the sum of an incr;
	 * what a counter-cas found. And the version of what is there afterwards, 0: not told. */
	uint64_t found;
	uint64_t version;
	uint64_t invoke_ns;
	_Atomic uint64_t return_ns; /* HISTORY_NEVER: killed before it returned */
};

struct history_segment {
	_Atomic uint32_t count;
	struct history_op *ops;
};

struct history {
	uint32_t processes;
	uint32_t capacity; /* of a segment */
	size_t size;
	struct history_segment segments[];
};

/* For so many processes, and so many operations of each. NULL: no memory. */
struct history *history_create(uint32_t processes, uint32_t capacity);
void history_destroy(struct history *history);

/* Forgets all operations. Nobody may be writing. */
void history_clear(struct history *history);

/* Writes down an operation that begins now: kind, key, argument and expected are taken from
 * `asked`. NULL: the segment is full. */
struct history_op *history_begin(struct history *history, uint32_t process,
				 const struct history_op *asked);
/* It returned, just now or then. What was told must be in it already. */
void history_end(struct history_op *op, int status);
void history_end_at(struct history_op *op, int status, uint64_t return_ns);

/* Appends an operation as it is, for tests. False: the segment is full. */
bool history_add(struct history *history, const struct history_op *op);

size_t history_count(const struct history *history);

/* False: errno says why, or it is 0 and the line that *line names is no operation. */
bool history_save(const struct history *history, const char *path);
struct history *history_load(const char *path, unsigned *line);

/* An operation in words, with times from `origin_ns` on: "p2 get key 3 -> value 17 version 4". */
int history_describe(const struct history_op *op, uint64_t origin_ns, char *text, size_t size);

/* Whether it is not known what became of it. */
static inline bool history_is_unknown(const struct history_op *op)
{
	return op->return_ns == HISTORY_NEVER || op->status == KV_UNKNOWN;
}

#endif
