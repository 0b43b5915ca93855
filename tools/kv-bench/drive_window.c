/*
 * A mix with a window of operations under way.
 *
 * Each place of the window holds one operation from its submission, or the moment when it was due,
 * to the poll that brings its answer. A read-modify-write is two operations in one place: when the
 * get is answered, the put is submitted. A scan cannot be submitted: it is made when nothing is
 * under way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "drive.h"

#define POLL_MAX 64

enum stage {
	STAGE_FREE,
	STAGE_ONLY,    /* submitted; its answer is the end */
	STAGE_READ,    /* of a read-modify-write: the get is submitted */
	STAGE_WAITING, /* the get was answered, the put did not fit into the window yet */
};

struct flight {
	enum stage stage;
	enum op op;
	uint64_t begin, number, bytes;
};

struct window {
	struct drive *drive;
	struct flight flights[BENCH_WINDOW_MAX];
	unsigned free_places[BENCH_WINDOW_MAX];
	unsigned free_count, size;
	unsigned under_way; /* submitted */
	unsigned waiting;   /* in STAGE_WAITING */
	uint64_t stuck_ns;  /* until when nothing fits, though nothing is under way; 0: it does */
	/* Drawn, and not to be had yet: the time, or the place. */
	bool has_next;
	int next_op;
	uint64_t next_begin, next_number;
	uint8_t next_key[KEY_SIZE_MAX];
	uint8_t key[KEY_SIZE_MAX];
};

/* The least number of a key that is being inserted. */
static uint64_t oldest_insert(const struct window *window)
{
	uint64_t oldest = NOT_INSERTING;

	for (unsigned i = 0; i < window->size; i++)
		if (window->flights[i].stage != STAGE_FREE && window->flights[i].op == OP_INSERT &&
		    window->flights[i].number < oldest)
			oldest = window->flights[i].number;
	if (window->has_next && window->next_op == OP_INSERT && window->next_number < oldest)
		oldest = window->next_number;
	return oldest;
}

static bool finish(struct window *window, unsigned place, int status, kv_path_t path)
{
	struct flight *flight = &window->flights[place];
	struct outcome outcome = {.op = flight->op,
				  .status = status,
				  .path = path,
				  .begin = flight->begin,
				  .ended = clock_ticks(),
				  .bytes = flight->bytes};

	flight->stage = STAGE_FREE;
	window->free_places[window->free_count++] = place;
	if (outcome.op == OP_INSERT)
		choose_inserted(window->drive->bench->shared, window->drive->slot,
				oldest_insert(window));
	return drive_count(window->drive, &outcome);
}

static int submit_put(struct window *window, unsigned place, const uint8_t *key)
{
	struct drive *drive = window->drive;
	struct bench *bench = drive->bench;

	value_number(bench->value, window->flights[place].number);
	return drive->ops->submit_put(drive->store, key, bench->value, bench->value_size,
				      drive->pass->ttl_ms, place);
}

/* The second half of a read-modify-write. True: go on. */
static bool submit_second(struct window *window, unsigned place)
{
	const struct config *config = window->drive->bench->config;
	struct flight *flight = &window->flights[place];
	int status;

	key_write(window->key, config->key_size, config->prefix, flight->number);
	status = submit_put(window, place, window->key);
	if (status == KV_AGAIN) {
		window->waiting += flight->stage != STAGE_WAITING;
		flight->stage = STAGE_WAITING;
		return true;
	}
	window->stuck_ns = 0;
	window->waiting -= flight->stage == STAGE_WAITING;
	if (status != KV_OK)
		return finish(window, place, status, KV_PATH_NONE);
	flight->stage = STAGE_ONLY;
	flight->bytes += window->drive->bench->value_size;
	window->under_way++;
	return true;
}

/* Submits what was drawn. False: it does not fit, or the run is at an end for failures. */
static bool submit_next(struct window *window, bool *failed)
{
	struct drive *drive = window->drive;
	unsigned place = window->free_places[window->free_count - 1];
	struct flight *flight = &window->flights[place];
	int status;

	*flight = (struct flight){.op = (enum op)window->next_op,
				  .begin = window->next_begin,
				  .number = window->next_number};
	if (flight->op == OP_GET || flight->op == OP_RMW) {
		status = drive->ops->submit_get(drive->store, window->next_key,
						bench_room(drive->bench, place), place);
	} else {
		status = submit_put(window, place, window->next_key);
		flight->bytes = drive->bench->value_size;
	}
	if (status == KV_AGAIN)
		return false;
	window->stuck_ns = 0;
	window->has_next = false;
	window->free_count--;
	if (status != KV_OK) {
		*failed = !finish(window, place, status, KV_PATH_NONE);
		return !*failed;
	}
	flight->stage = flight->op == OP_RMW ? STAGE_READ : STAGE_ONLY;
	window->under_way++;
	return true;
}

static bool scan_now(struct window *window)
{
	struct drive *drive = window->drive;
	struct outcome outcome = {.op = OP_SCAN, .begin = window->next_begin};

	window->has_next = false;
	outcome.status = drive->ops->scan(
		drive->store, 1 + (unsigned)dice_below(&drive->bench->dice, BENCH_SCAN_MAX),
		&outcome.bytes);
	outcome.ended = clock_ticks();
	outcome.path = drive->store->path;
	return drive_count(drive, &outcome);
}

/* Draws the next operation if there is none. False: there are no more. */
static bool have_next(struct window *window)
{
	struct drive *drive = window->drive;
	const uint8_t *key;

	if (window->has_next)
		return true;
	window->next_op = drive_next(drive, &window->next_begin, &key, &window->next_number);
	if (window->next_op < 0)
		return false;
	memcpy(window->next_key, key, drive->bench->config->key_size);
	window->has_next = true;
	return true;
}

/* Fills the window with what is due. *more: whether anything is left to be begun. */
static bool fill(struct window *window, bool *more)
{
	bool failed = false;

	for (unsigned i = 0; window->waiting && i < window->size; i++)
		if (window->flights[i].stage == STAGE_WAITING && !submit_second(window, i))
			return false;
	while (window->free_count && !window->waiting) {
		*more = have_next(window);
		if (!*more || window->next_begin > clock_ticks())
			break;
		if (window->next_op == OP_SCAN) {
			if (window->under_way)
				break;
			if (!scan_now(window))
				return false;
			continue;
		}
		if (!submit_next(window, &failed))
			break;
	}
	return !failed;
}

static bool take(struct window *window, const struct done *done)
{
	unsigned place = (unsigned)done->cookie;
	struct flight *flight = &window->flights[place];
	int status = done->status;

	window->under_way--;
	if (flight->stage == STAGE_ONLY && flight->op != OP_GET)
		return finish(window, place, status, done->path);
	if (status == KV_OK) {
		status = drive_check(window->drive, done->value, done->length, flight->number);
		flight->bytes += done->length;
	}
	if (flight->stage == STAGE_READ && (status == KV_OK || status == KV_NOT_FOUND))
		return submit_second(window, place);
	return finish(window, place, status, done->path);
}

/* Everything under way has failed with the connection. */
static void lose_all(struct window *window, int status)
{
	for (unsigned i = 0; i < window->size; i++)
		if (window->flights[i].stage != STAGE_FREE)
			(void)finish(window, i, status, KV_PATH_NONE);
	window->under_way = window->waiting = 0;
}

/* How long to wait for an answer: not beyond the moment when the next operation is due. */
static int patience_ms(const struct window *window)
{
	uint64_t now = clock_ticks();

	if (!window->has_next || !window->free_count || window->next_op == OP_SCAN)
		return -1;
	if (window->next_begin <= now)
		return -1; /* it did not fit */
	return (int)(clock_ticks_to_ns(window->next_begin - now) / 1000000);
}

static enum rmr_status take_answers(struct window *window)
{
	struct drive *drive = window->drive;
	struct done done[POLL_MAX];
	int patience = patience_ms(window);
	int count = drive->ops->poll(drive->store, done, POLL_MAX, patience);

	if (count < 0 || (count == 0 && patience < 0)) {
		lose_all(window, count < 0 ? count : KV_TIMEOUT);
		return error_set(RMR_SYSTEM, "poll: %s", drive->store->error);
	}
	for (int i = 0; i < count; i++)
		if (done[i].cookie >= window->size)
			return error_set(RMR_SYSTEM, "poll: a cookie that was never given");
		else if (!take(window, &done[i]))
			return drive_give_up(drive);
	return RMR_OK;
}

/* Nothing is under way, and what is due does not fit: the library has requests of its own in the
 * window. A poll takes their answers in. */
static enum rmr_status make_room(struct window *window)
{
	struct drive *drive = window->drive;
	struct done done;

	if (!window->stuck_ns)
		window->stuck_ns = clock_deadline_ns(drive->bench->config->options.timeout_ms);
	if (drive->ops->poll(drive->store, &done, 1, 0) < 0 || clock_passed(window->stuck_ns))
		return error_set(RMR_TIMEOUT, "the window is full of requests that nobody answers");
	return RMR_OK;
}

enum rmr_status drive_window(struct drive *drive)
{
	struct window *window = calloc(1, sizeof(*window));
	enum rmr_status status = RMR_OK;
	bool more = true;

	if (!window)
		return error_set(RMR_NO_MEMORY, "a window");
	window->drive = drive;
	window->size = drive->pass->window;
	for (unsigned i = window->size; i-- > 0;)
		window->free_places[window->free_count++] = i;
	while (status == RMR_OK && (more || window->under_way || window->waiting)) {
		if (!fill(window, &more))
			status = drive_give_up(drive);
		else if (window->under_way)
			status = take_answers(window);
		else if (window->waiting ||
			 (window->has_next && window->next_begin <= clock_ticks()))
			status = make_room(window);
		else if (window->has_next)
			pace_wait(window->next_begin);
	}
	free(window);
	return status;
}
