/*
 * The simulation, and how its histories are spoilt. Times are arbitrary numbers, a few hundred
 * between operations.
 */
#include "generator.h"

#include <stdlib.h>

#define VERSION_BLOCK 16u
#define WORKERS	      3u

/* A key of the simulated store. */
struct cell {
	bool is_there;
	bool is_counter;
	uint64_t content;
	uint64_t version;
	uint64_t old_version;
};

/* An operation, and when it is carried out; HISTORY_NEVER: not at all. */
struct event {
	uint64_t at_ns;
	struct history_op op;
	bool is_lost;
	bool is_quiet;
};

struct simulation {
	const struct generator_options *options;
	struct test_rng *rng;
	struct cell *cells;
	uint64_t blocks;
	uint64_t next_version[WORKERS];
	uint64_t next_id;
};

/* As the store does it: from one worker's block or another's, but above what is replaced. */
static uint64_t new_version(struct simulation *sim, uint64_t above)
{
	uint64_t *next = &sim->next_version[test_rng_below(sim->rng, WORKERS)];

	if (*next % VERSION_BLOCK == 0 || *next <= above)
		*next = ++sim->blocks * VERSION_BLOCK + 1;
	return (*next)++;
}

static void set_cell(struct simulation *sim, struct cell *cell, bool is_counter, uint64_t content)
{
	uint64_t version = new_version(sim, cell->is_there ? cell->version : 0);

	*cell = (struct cell){true, is_counter, content, version, cell->version};
}

static int do_get(const struct cell *cell, struct history_op *op)
{
	if (!cell->is_there)
		return KV_NOT_FOUND;
	op->found_kind = cell->is_counter ? HISTORY_FOUND_NUMBER : HISTORY_FOUND_VALUE;
	op->found = cell->content;
	op->version = cell->version;
	return KV_OK;
}

static int do_put(struct simulation *sim, struct cell *cell, struct history_op *op)
{
	op->argument = ++sim->next_id;
	if (op->kind == HISTORY_PUT_IF_ABSENT && cell->is_there) {
		op->version = cell->version;
		return KV_EXISTS;
	}
	if (op->kind == HISTORY_CAS && !cell->is_there)
		return KV_NOT_FOUND;
	if (op->kind == HISTORY_CAS && cell->version != op->expected) {
		op->version = cell->version;
		return KV_CAS_FAILED;
	}
	set_cell(sim, cell, false, op->argument);
	op->version = cell->version;
	return KV_OK;
}

static int do_delete(struct cell *cell, struct history_op *op)
{
	if (!cell->is_there)
		return KV_NOT_FOUND;
	if (op->kind == HISTORY_DELETE_IF_VERSION && cell->version != op->expected) {
		op->version = cell->version;
		return KV_CAS_FAILED;
	}
	*cell = (struct cell){.old_version = cell->version};
	return KV_OK;
}

static int do_count(struct simulation *sim, struct cell *cell, struct history_op *op)
{
	if (cell->is_there && !cell->is_counter)
		return KV_NOT_A_NUMBER;
	op->argument = 1 + test_rng_below(sim->rng, 2);
	if (op->kind == HISTORY_INCR) {
		if (!cell->is_there)
			set_cell(sim, cell, true, 0);
		op->found = cell->content += op->argument;
		return KV_OK;
	}
	if (!cell->is_there)
		return KV_NOT_FOUND;
	op->expected = cell->content + test_rng_below(sim->rng, 2);
	op->argument = test_rng_below(sim->rng, 10);
	op->found = cell->content;
	if (cell->content != op->expected)
		return KV_CAS_FAILED;
	cell->content = op->argument;
	return KV_OK;
}

/* What is expected is what was there lately, as processes do. */
static void carry_out(struct simulation *sim, struct history_op *op)
{
	struct cell *cell = &sim->cells[op->key];
	int status;

	op->expected = test_rng_below(sim->rng, 3) ? cell->version : cell->old_version;
	switch (op->kind) {
	case HISTORY_GET:
		status = do_get(cell, op);
		break;
	case HISTORY_DELETE:
	case HISTORY_DELETE_IF_VERSION:
		status = do_delete(cell, op);
		break;
	case HISTORY_INCR:
	case HISTORY_COUNTER_CAS:
		status = do_count(sim, cell, op);
		break;
	default:
		status = do_put(sim, cell, op);
		break;
	}
	op->status = (int16_t)status;
}

/* ------------------------------------------------------------------------------------------
 * What is asked, and when
 */

static enum history_kind pick_kind(const struct generator_options *options, struct test_rng *rng)
{
	uint64_t dice = test_rng_below(rng, 100);

	if (options->only_counting)
		return dice < 50 ? HISTORY_INCR : HISTORY_GET;
	if (dice < 40)
		return HISTORY_GET;
	if (dice < 60)
		return HISTORY_PUT;
	if (dice < 66)
		return HISTORY_PUT_IF_ABSENT;
	if (dice < 76)
		return HISTORY_CAS;
	if (options->no_deletes || dice >= 88)
		return dice % 4 ? HISTORY_INCR : HISTORY_COUNTER_CAS;
	return dice % 3 ? HISTORY_DELETE : HISTORY_DELETE_IF_VERSION;
}

/* The answer gets lost: it happens by then, later, or never. */
static void lose(struct event *event, struct test_rng *rng)
{
	event->is_lost = true;
	if (test_rng_below(rng, 2))
		event->at_ns = HISTORY_NEVER;
	else if (test_rng_below(rng, 2))
		event->at_ns += test_rng_below(rng, 10000);
}

static void make_events(struct simulation *sim, uint32_t process, struct event *events)
{
	const struct generator_options *options = sim->options;
	uint64_t now = 1000 + test_rng_below(sim->rng, 100);

	for (uint32_t i = 0; i < options->operations; i++) {
		struct event *event = &events[i];

		*event = (struct event){0};
		event->op.process = process;
		event->op.key = (uint32_t)test_rng_below(sim->rng, options->keys);
		event->op.kind = (uint8_t)pick_kind(options, sim->rng);
		event->op.invoke_ns = now += 1 + test_rng_below(sim->rng, 200);
		event->at_ns = now += test_rng_below(sim->rng, 300);
		/* Now and then one that takes long. */
		if (test_rng_below(sim->rng, 50) == 0)
			now += test_rng_below(sim->rng, 5000);
		event->op.return_ns = now += test_rng_below(sim->rng, 300);
		event->is_quiet = test_rng_below(sim->rng, 100) < options->quiet_percent;
		if (test_rng_below(sim->rng, 1000000) < options->lost_ppm)
			lose(event, sim->rng);
	}
}

static int compare_moments(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static int compare_invocations(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return (x->op.invoke_ns > y->op.invoke_ns) - (x->op.invoke_ns < y->op.invoke_ns);
}

static void hide_answer(struct event *event, struct test_rng *rng)
{
	struct history_op *op = &event->op;

	if (event->is_lost) {
		op->status = KV_UNKNOWN;
		op->found = op->version = 0;
		op->found_kind = 0;
		if (test_rng_below(rng, 2))
			op->return_ns = HISTORY_NEVER;
	} else if (event->is_quiet) {
		op->version = 0;
	}
}

struct history *generator_run(const struct generator_options *options, struct test_rng *rng)
{
	size_t count = (size_t)options->processes * options->operations;
	struct simulation sim = {.options = options, .rng = rng};
	struct history *history = history_create(options->processes, options->operations);
	struct event *events = calloc(count, sizeof(*events));

	sim.cells = calloc(options->keys, sizeof(*sim.cells));
	CHECK(history && events && sim.cells);
	for (uint32_t i = 0; i < options->processes; i++)
		make_events(&sim, i, &events[(size_t)i * options->operations]);
	qsort(events, count, sizeof(*events), compare_moments);
	for (size_t i = 0; i < count; i++) {
		if (events[i].at_ns == HISTORY_NEVER)
			events[i].op.argument = ++sim.next_id;
		else
			carry_out(&sim, &events[i].op);
		hide_answer(&events[i], rng);
	}
	qsort(events, count, sizeof(*events), compare_invocations);
	for (size_t i = 0; i < count; i++)
		CHECK(history_add(history, &events[i].op));
	free(events);
	free(sim.cells);
	return history;
}
