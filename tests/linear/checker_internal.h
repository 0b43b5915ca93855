/*
 * What the files of the checker say to each other.
 *
 *	checker.c	sorts the operations by key; the verdict
 *	versions.c	the first pass, over the whole history
 *	prepare.c	the operations of a key, made ready for the search
 *	search.c	the search
 *	memo.c		where the search has been already
 */
#ifndef TESTS_LINEAR_CHECKER_INTERNAL_H
#define TESTS_LINEAR_CHECKER_INTERNAL_H

#include "checker.h"
#include "model.h"

/* Operations of the history, sorted by key and invocation. */
struct op_list {
	const struct history_op **ops;
	size_t count;
	uint64_t origin_ns; /* the first invocation */
};

/* Whether it did nothing, by its own account. */
static inline bool op_is_void(const struct history_op *op)
{
	if (history_is_unknown(op))
		return op->kind == HISTORY_GET;
	return op->status == KV_TIMEOUT || op->status == KV_DISCONNECTED || op->status == KV_BUSY ||
	       op->status == KV_NO_MEMORY || op->status == KV_AGAIN;
}

static inline bool op_is_put(const struct history_op *op)
{
	return op->kind == HISTORY_PUT || op->kind == HISTORY_PUT_IF_ABSENT ||
	       op->kind == HISTORY_CAS;
}

static inline bool op_is_delete(const struct history_op *op)
{
	return op->kind == HISTORY_DELETE || op->kind == HISTORY_DELETE_IF_VERSION;
}

/* What was there is gone afterwards, if the operation happened. */
static inline bool op_replaces(const struct model_op *op)
{
	return (op_is_put(op->from) || op_is_delete(op->from)) &&
	       (op->is_blind || op->from->status == KV_OK);
}

/* It read a value's bytes. */
static inline bool op_saw_value(const struct history_op *op)
{
	return op->kind == HISTORY_GET && !history_is_unknown(op) && op->status == KV_OK &&
	       op->found_kind == HISTORY_FOUND_VALUE;
}

__attribute__((format(printf, 2, 3))) void report_add(struct checker_report *report,
						      const char *format, ...);
void report_add_op(struct checker_report *report, const char *before, const struct history_op *op,
		   uint64_t origin_ns);

/* versions.c. Writes what is wrong to the report. */
enum checker_verdict versions_check(const struct op_list *all, struct checker_report *report);

/*
 * A lane: operations that follow each other. Of the certain lanes each operation returned before
 * the next was invoked. Those of the optional ones, which may be left out, do the same thing, and
 * are sorted by invocation: there is no reason to use one before those that come before it. So how
 * far one has come in each lane says which operations were carried out.
 */
struct lane {
	struct model_op *ops;
	uint32_t count;
};

struct plan {
	struct model_op *ops; /* of all lanes, one after the other */
	uint32_t count;
	struct lane *lanes;
	uint32_t lane_count;	/* of both sorts */
	uint32_t certain_lanes; /* the first ones */
	uint32_t certain;	/* operations in them */
	uint64_t origin_ns;
};

/* prepare.c. False: no memory. */
bool plan_init(struct plan *plan, const struct op_list *key_ops);
void plan_fini(struct plan *plan);

/* memo.c: a set of (place in each lane, state). */
struct memo {
	size_t entry_size;
	uint32_t lanes, certain_lanes;
	uint8_t *entries;
	uint32_t count, room;
	uint32_t *table; /* number of an entry + 1; 0: none */
	uint32_t table_mask;
	uint64_t compared; /* entries, so far: what it costs */
};

enum memo_answer {
	MEMO_NEW, /* it is in there now */
	MEMO_OLD, /* it was, or the same with no more optional operations used */
	MEMO_NO_MEMORY,
};

void memo_init(struct memo *memo, uint32_t lanes, uint32_t certain_lanes);
void memo_fini(struct memo *memo);
enum memo_answer memo_add(struct memo *memo, const uint32_t *places,
			  const struct model_state *state);

/* search.c */
enum checker_verdict search_run(const struct plan *plan, uint64_t max_states,
				struct checker_report *report);

#endif
