/*
 * A mix of operations against a store, by one thread.
 *
 * Operations and keys are drawn by the block. Drawing a Zipf rank takes as long as a get from
 * mapped memory, and no real program spends its time so; where operations follow each other one by
 * one, the time of drawing is left out of the rate. With a window it is not: answers come in
 * meanwhile.
 *
 * Operations that fail are counted by kind, and the run goes on; when many fail in a row there is
 * nothing left to measure, and it ends.
 */
#include "drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/error.h"

#define DRAW_COUNT    256u
#define FAILURES_MAX  100u
#define LOST_COUNTS   25u	 /* as many failures, for each takes as long as the timeout is */
#define INSERT_NUMBER UINT64_MAX /* of a key that gets its number when it is inserted */
#define OVERTIME_NS   UINT64_C(1000000000)

/* Draws the next operations and their keys. */
static void draw(struct drive *drive)
{
	struct bench *bench = drive->bench;
	struct block *block = &bench->block;
	uint64_t begin = clock_ticks();

	for (size_t i = 0; i < DRAW_COUNT; i++) {
		double point = dice_real(&bench->dice);
		int op = 0;

		while (op < OP_COUNT - 1 && point >= drive->pass->weights[op])
			op++;
		drive->drawn[i] = (uint8_t)op;
		block->numbers[i] =
			op == OP_INSERT || op == OP_SCAN
				? INSERT_NUMBER
				: choose_key(&drive->chooser, &bench->dice, bench->shared);
	}
	block_make_keys(block, DRAW_COUNT);
	drive->next = 0;
	drive->count = DRAW_COUNT;
	if (drive->pass->window == 1 && begin >= drive->measure)
		drive->drawing += clock_ticks() - begin;
}

int drive_next(struct drive *drive, uint64_t *begin, const uint8_t **key, uint64_t *number)
{
	struct bench *bench = drive->bench;
	uint64_t now;
	size_t i;

	if (drive->begun == drive->limit)
		return -1;
	if (drive->next == drive->count)
		draw(drive);
	now = clock_ticks();
	*begin = now;
	if (pace_has_rate(&drive->pace)) {
		if (drive->pace.next >= (double)drive->end ||
		    now > drive->end + pace_ticks_of(OVERTIME_NS))
			return -1;
		*begin = pace_take(&drive->pace);
	} else if (now >= drive->end) {
		return -1;
	}
	if (drive->begun++ == drive->warm_up && drive->measure == UINT64_MAX)
		drive->measure = *begin;
	i = drive->next++;
	*number = bench->block.numbers[i];
	*key = block_key(&bench->block, i);
	if (drive->drawn[i] == OP_INSERT) {
		*number = choose_new(bench->shared, drive->slot);
		key_write(drive->insert_key, bench->config->key_size, bench->config->prefix,
			  *number);
		*key = drive->insert_key;
	}
	return drive->drawn[i];
}

int drive_check(const struct drive *drive, const uint8_t *value, size_t length, uint64_t number)
{
	size_t size = drive->bench->value_size;

	if (length != size || memcmp(value, &number, sizeof(number)))
		return STATUS_WRONG_VALUE;
	if (drive->pass->verify && !value_is(value, size, number))
		return STATUS_WRONG_VALUE;
	return KV_OK;
}

static void note_error(struct drive *drive, const struct outcome *outcome)
{
	struct slot *slot = drive->slot;
	int kind = -outcome->status;

	if (kind < 0 || kind >= KIND_COUNT)
		kind = -KV_INTERNAL;
	slot->errors[outcome->op][kind]++;
	if (*slot->first_error)
		return;
	if (kind == KIND_WRONG_VALUE)
		snprintf(slot->first_error, sizeof(slot->first_error),
			 "%s: a wrong value, or one of another length; was the server filled with "
			 "--value-size %zu?",
			 op_names[outcome->op], drive->bench->value_size);
	else
		snprintf(slot->first_error, sizeof(slot->first_error), "%s: %s",
			 op_names[outcome->op], drive->store->error);
}

static unsigned failures_of(int status)
{
	return status == KV_DISCONNECTED || status == KV_TIMEOUT || status == KV_UNKNOWN
		       ? LOST_COUNTS
		       : 1;
}

bool drive_count(struct drive *drive, const struct outcome *outcome)
{
	struct slot *slot = drive->slot;
	bool failed = outcome->status != KV_OK && outcome->status != KV_NOT_FOUND;
	struct cell *cell;

	atomic_store_explicit(&slot->done,
			      atomic_load_explicit(&slot->done, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	drive->failures = failed ? drive->failures + failures_of(outcome->status) : 0;
	if (failed)
		note_error(drive, outcome);
	if (outcome->begin < drive->measure)
		return drive->failures < FAILURES_MAX;
	drive->last = outcome->ended;
	slot->operations++;
	slot->misses[outcome->op] += outcome->status == KV_NOT_FOUND;
	if (failed)
		return drive->failures < FAILURES_MAX;
	cell = &slot->cells[outcome->op][outcome->path];
	if (!cell->latency.count)
		histogram_reset(&cell->latency);
	cell->bytes += outcome->bytes;
	histogram_record(&cell->latency, clock_ticks_to_ns(outcome->ended > outcome->begin
								   ? outcome->ended - outcome->begin
								   : 0));
	return true;
}

static int run_get(struct drive *drive, const uint8_t *key, uint64_t number,
		   struct outcome *outcome)
{
	const uint8_t *value = NULL;
	size_t length = 0;
	int status = drive->ops->get(drive->store, key, drive->bench->room, &value, &length);

	outcome->ended = clock_ticks();
	outcome->path = drive->store->path;
	if (status != KV_OK)
		return status;
	outcome->bytes += length;
	return drive_check(drive, value, length, number);
}

static int run_put(struct drive *drive, const uint8_t *key, uint64_t number,
		   struct outcome *outcome)
{
	struct bench *bench = drive->bench;
	int status;

	value_number(bench->value, number);
	status = drive->ops->put(drive->store, key, bench->value, bench->value_size,
				 drive->pass->ttl_ms);
	outcome->ended = clock_ticks();
	outcome->path = drive->store->path;
	outcome->bytes += bench->value_size;
	return status;
}

static void run_one(struct drive *drive, const uint8_t *key, uint64_t number,
		    struct outcome *outcome)
{
	switch (outcome->op) {
	case OP_GET:
		outcome->status = run_get(drive, key, number, outcome);
		break;
	case OP_RMW:
		outcome->status = run_get(drive, key, number, outcome);
		if (outcome->status == KV_OK || outcome->status == KV_NOT_FOUND)
			outcome->status = run_put(drive, key, number, outcome);
		break;
	case OP_SCAN:
		outcome->status = drive->ops->scan(
			drive->store, 1 + (unsigned)dice_below(&drive->bench->dice, BENCH_SCAN_MAX),
			&outcome->bytes);
		outcome->ended = clock_ticks();
		outcome->path = drive->store->path;
		break;
	case OP_INSERT:
		outcome->status = run_put(drive, key, number, outcome);
		choose_inserted(drive->bench->shared, drive->slot, NOT_INSERTING);
		break;
	default:
		outcome->status = run_put(drive, key, number, outcome);
	}
}

enum rmr_status drive_give_up(const struct drive *drive)
{
	return error_set(RMR_SYSTEM, "one operation after the other failed: %s",
			 drive->slot->first_error);
}

static enum rmr_status drive_one_by_one(struct drive *drive)
{
	for (;;) {
		struct outcome outcome = {0};
		const uint8_t *key;
		uint64_t number;
		int op = drive_next(drive, &outcome.begin, &key, &number);

		if (op < 0)
			return RMR_OK;
		if (outcome.begin > clock_ticks())
			pace_wait(outcome.begin);
		outcome.op = (enum op)op;
		run_one(drive, key, number, &outcome);
		if (!drive_count(drive, &outcome))
			return drive_give_up(drive);
		if (drive->pace.think)
			pace_wait(clock_ticks() + drive->pace.think);
	}
}

/* How many operations are this thread's. In order, it is its part so many times. */
static uint64_t limit_of(const struct drive *drive, unsigned index, unsigned count)
{
	const struct pass *pass = drive->pass;
	const struct chooser *chooser = &drive->chooser;

	if (!pass->operations)
		return UINT64_MAX;
	if (pass->distribution == DIST_SEQUENTIAL && pass->operations % chooser->keys == 0)
		return drive->warm_up +
		       (chooser->last - chooser->first) * (pass->operations / chooser->keys);
	return drive->warm_up + pass->operations / count + (index < pass->operations % count);
}

static void drive_begin(struct drive *drive, const struct order *order)
{
	const struct pass *pass = drive->pass;
	unsigned count = pass->alone ? 1 : config_slots(drive->bench->config);
	unsigned index = drive->bench->index;
	uint64_t now_ns = clock_now_ns(), start;

	/* One moment for all threads, as ticks. */
	start = clock_ticks() +
		(order->start_ns > now_ns ? pace_ticks_of(order->start_ns - now_ns) : 0);
	choose_init(&drive->chooser, pass, drive->bench->config->keys, index, count);
	pace_init(&drive->pace, pass->rate, pass->think_ns, start, index, count);
	drive->warm_up = pass->warm_up_operations;
	drive->limit = limit_of(drive, index, count);
	drive->measure =
		pass->warm_up_operations ? UINT64_MAX : start + pace_ticks_of(pass->warm_up_ns);
	drive->end = UINT64_MAX;
	if (!pass->operations)
		drive->end = start + pace_ticks_of(pass->warm_up_ns + pass->duration_ns);
	prctl(PR_SET_TIMERSLACK, 1);
	draw(drive);
	pace_wait(start);
}

static void clear_slot(struct slot *slot)
{
	slot->operations = slot->time_ns = slot->unbegun = slot->last_ticks = 0;
	memset(slot->misses, 0, sizeof(slot->misses));
	memset(slot->errors, 0, sizeof(slot->errors));
	slot->first_error[0] = '\0';
	atomic_store(&slot->inserting, NOT_INSERTING);
	/* Most cells were never used, and their pages never touched: the first operation of a cell
	 * empties its histogram. */
	for (int op = 0; op < OP_COUNT; op++)
		for (int path = 0; path < KV_PATH_COUNT; path++)
			if (slot->cells[op][path].latency.count)
				slot->cells[op][path].latency.count = slot->cells[op][path].bytes =
					0;
}

enum rmr_status drive_run(struct bench *bench, struct store *store, const struct order *order)
{
	struct drive *drive = calloc(1, sizeof(*drive));
	enum rmr_status status;

	if (!drive)
		return error_set(RMR_NO_MEMORY, "the state of a mix");
	drive->bench = bench;
	drive->store = store;
	drive->ops = store->ops;
	drive->pass = &order->pass;
	drive->slot = bench->slot;
	clear_slot(bench->slot);
	if (plan_share(&order->pass, OP_SCAN) > 0 && !store->ops->scan) {
		free(drive);
		return error_set(RMR_UNSUPPORTED, "this store has no scan");
	}
	drive_begin(drive, order);
	status = order->pass.window > 1 ? drive_window(drive) : drive_one_by_one(drive);
	if (drive->last > drive->measure + drive->drawing)
		bench->slot->time_ns =
			clock_ticks_to_ns(drive->last - drive->measure - drive->drawing);
	bench->slot->first_ticks = drive->measure;
	bench->slot->last_ticks = drive->last;
	bench->slot->unbegun = pace_left(&drive->pace, drive->end);
	free(drive);
	return status;
}
