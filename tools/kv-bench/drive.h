/*
 * The state of a thread that drives a mix against a store: drive.c and drive_window.c.
 */
#ifndef KV_BENCH_DRIVE_H
#define KV_BENCH_DRIVE_H

#include "choose.h"
#include "pace.h"
#include "store.h"

struct drive {
	struct bench *bench;
	struct store *store;
	const struct store_ops *ops;
	const struct pass *pass;
	struct slot *slot;
	struct chooser chooser;
	struct pace pace;
	/* Operations that were drawn, with their keys in bench->block. */
	uint8_t drawn[BLOCK_KEYS];
	size_t next, count;
	uint64_t drawing; /* ticks that went by drawing while the clock ran, to be left out */
	/* Time, in ticks. */
	uint64_t measure;      /* operations that begin here or later count */
	uint64_t end;	       /* none begins later */
	uint64_t last;	       /* when the last one ended */
	uint64_t begun, limit; /* operations; limit: UINT64_MAX when time limits */
	uint64_t warm_up;      /* operations before those that count */
	unsigned failures;     /* in a row */
	uint8_t insert_key[KEY_SIZE_MAX];
};

/* The operation that is next, or -1 at the end of the run. *begin: when it began, or was due; if
 * that is in the future, the caller waits. *key and *number: what it is on. */
int drive_next(struct drive *drive, uint64_t *begin, const uint8_t **key, uint64_t *number);

/* Counts an operation. ended: when, in ticks. False: too many have failed in a row. */
struct outcome {
	enum op op;
	int status;
	kv_path_t path;
	uint64_t begin, ended;
	uint64_t bytes;
};
bool drive_count(struct drive *drive, const struct outcome *outcome);

/* What to say then. */
enum rmr_status drive_give_up(const struct drive *drive);

/* KV_OK, or a pseudo status if the value is not that of the key. */
#define STATUS_WRONG_VALUE (-KIND_WRONG_VALUE)
int drive_check(const struct drive *drive, const uint8_t *value, size_t length, uint64_t number);

/* drive_window.c */
RMR_MUST_CHECK enum rmr_status drive_window(struct drive *drive);

#endif
