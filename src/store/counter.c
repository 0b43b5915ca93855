/*
 * Counters: adding to a number, and swapping it for another.
 *
 * A number has one of two forms:
 *
 *	in a cell	the item's value is the number of a cell (cells.c). Peers that were told the
 *			cell count in it by atomics of their own.
 *	as text		an ordinary value, the decimal text. Only the store counts: it replaces the
 *			item, which gets a new version.
 *
 * Every int64 is a number, but a cell holds only those up to STORE_CELL_MAX, by their size:
 *
 *	0		2^60		2^61			2^62
 *	+---------------+---------------+-----------------------+-----------------
 *	| text that is	| cells stay	| large: the store does	| the counter has
 *	| counted gets	| cells, text	| not tell the cell, a	| left the cell
 *	| a cell if one	| stays text	| peer that finds this	|
 *	| is free	|		| forgets it, and what	|
 *	|		|		| the store counts	|
 *	|		|		| becomes text		|
 *
 * Peers add less than STORE_CELL_STEP, 2^32, at a time. After a number has become large, a peer
 * adds to the cell at most once for each operation that it has under way and for each reply that is
 * on its way to it, which is less than 2^11 times with a window of 2^10: it would take 2^18 peers
 * at the same moment to bring the number from 2^61 to 2^62. STORE_COUNTER_GONE is the middle of
 * what is beyond, where late additions have twice that room to either side.
 *
 * The bucket is locked while the store changes a cell, so that the cell stays the key's. When a
 * number leaves its cell, the text is complete but pending before the cell is ended, and is not
 * believed before: whenever the process ends, exactly one of both holds the number (restore.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"

#define MAX_DIGITS 20 /* of INT64_MIN, with its sign */

/* Text of at most this becomes a cell. Below STORE_CELL_LARGE, so that a number at the limit does
 * not go to and fro. */
#define SMALL (STORE_CELL_LARGE / 2)

/* An addition or a swap, and what became of it. */
struct count {
	const void *key;
	size_t key_length;
	bool is_swap;
	int64_t delta;
	int64_t expected, desired; /* of a swap */

	enum store_status status;
	int64_t before, after;
	struct store_info *info; /* NULL: not wanted */
};

static size_t format(int64_t number, char text[24])
{
	return (size_t)snprintf(text, 24, "%" PRId64, number);
}

size_t cells_format(const struct store *store, const struct item *item, char text[24])
{
	return format(cells_read(store, item), text);
}

/* The number that the value is the decimal text of. */
static bool parse(const char *value, size_t length, int64_t *number)
{
	char text[MAX_DIGITS + 1], *end;

	/* strtoll() would skip a sign or white space. */
	if (length == 0 || length > MAX_DIGITS ||
	    (value[0] != '-' && (value[0] < '0' || value[0] > '9')))
		return false;
	memcpy(text, value, length);
	text[length] = '\0';
	errno = 0;
	*number = strtoll(text, &end, 10);
	return errno == 0 && *end == '\0' && end == text + length && end > text;
}

/* What `before` becomes. False: it stays, and count->status says why. */
static bool decide(struct count *count, int64_t before)
{
	count->before = before;
	count->status = STORE_OK;
	count->after = count->desired;
	if (count->is_swap && before != count->expected)
		count->status = STORE_CONFLICT;
	else if (!count->is_swap && __builtin_add_overflow(before, count->delta, &count->after))
		count->status = STORE_OUT_OF_RANGE;
	return count->status == STORE_OK;
}

/* ------------------------------------------------------------------------------------------
 * One step in each form. False: the key has become something else meanwhile; look again.
 */

/* Writes the number to an item of its own, if the key is as `put` says: with a cell if it is small
 * and one is free. */
static bool write(struct store_worker *worker, struct count *count, struct store_put *put)
{
	struct cells *cells = &worker->store->cells;
	bool is_small = count->after >= -SMALL && count->after <= SMALL;
	uint64_t cell = is_small ? cells_take(cells) : STORE_NO_CELL;
	struct store_draft draft;
	char text[24];

	put->value_length = cell == STORE_NO_CELL ? format(count->after, text) : sizeof(cell);
	count->status = store_draft_begin(worker, put, &draft);
	if (count->status == STORE_OK) {
		if (cell != STORE_NO_CELL) {
			item_write_key(draft.item, put->key, put->key_length, sizeof(cell),
				       ITEM_COUNTER);
			atomic_store(&cells->cells[cell], count->after);
		}
		memcpy(draft.value, cell == STORE_NO_CELL ? (void *)text : &cell,
		       put->value_length);
		count->status = store_draft_commit(worker, put, &draft, count->info);
	}
	if (count->status != STORE_OK && cell != STORE_NO_CELL)
		cells_give(cells, cell);
	return count->status != STORE_CONFLICT && count->status != STORE_EXISTS &&
	       count->status != STORE_NOT_FOUND;
}

static bool count_from_nothing(struct store_worker *worker, struct count *count)
{
	struct store_put put = {
		.key = count->key, .key_length = count->key_length, .condition = STORE_IF_ABSENT};

	if (count->is_swap) {
		count->status = STORE_NOT_FOUND;
		return true;
	}
	return !decide(count, 0) || write(worker, count, &put);
}

/* The bucket is locked, and unlocked afterwards. */
static bool count_text(struct store_worker *worker, struct count *count, struct index_lock *lock,
		       struct item *item)
{
	struct store_put put = {.key = count->key,
				.key_length = count->key_length,
				.condition = STORE_IF_VERSION,
				.version = item_version(item),
				.keeps_expiry = true};
	uint64_t length = item_value_length(item_get_lengths(item));
	char text[MAX_DIGITS];
	int64_t number;

	if (length <= sizeof(text))
		memcpy(text, item_value(item), length);
	index_unlock(lock);
	if (length > sizeof(text) || !parse(text, length, &number)) {
		count->status = STORE_NOT_A_NUMBER;
		return true;
	}
	return !decide(count, number) || write(worker, count, &put);
}

/* Takes the number out of the cell and writes what it becomes to the draft, which then is complete
 * and pending. The bucket is locked. */
static bool empty_cell(struct store_worker *worker, struct count *count, struct store_draft *draft,
		       const struct item *item)
{
	struct store *store = worker->store;
	uint64_t cell = cell_of(item), offset = offset_of(store, draft->item);
	uint64_t version = version_next(worker, item_version(item));
	int64_t now, found = atomic_load(&store->cells.cells[cell]);
	char text[24];

	do {
		now = found;
		/* Its text may have another length now, for which the draft has no room. */
		if (!decide(count, now) || format(count->after, text) != draft->value_length)
			return false;
		memcpy(draft->value, text, draft->value_length);
		item_publish(draft->item, offset, version, item_expiry(item),
			     item_body_hash(draft->item), true);
		/* If it cannot be told what happened, the cell tells. */
		if (!cells_swap(&store->cells, cell, now, STORE_COUNTER_GONE, &found) &&
		    !store_cell_is_gone(atomic_load(&store->cells.cells[cell]))) {
			count->status = STORE_UNKNOWN;
			return false;
		}
	} while (found != now);
	return true;
}

/* Turns a number that becomes too large for its cell into text. */
static bool leave_cell(struct store_worker *worker, struct count *count)
{
	struct store *store = worker->store;
	struct store_put put = {.key = count->key, .key_length = count->key_length};
	struct index_lock lock;
	struct index_slot slot;
	struct store_draft draft;
	struct item *item;
	char text[24];

	put.value_length = format(count->after, text);
	count->status = store_draft_begin(worker, &put, &draft);
	if (count->status != STORE_OK)
		return true;
	if (!life_lock_key(worker, draft.hash, count->key, count->key_length, &lock, &slot)) {
		store_draft_abort(worker, &draft);
		return false;
	}
	item = slot_item(store, &slot);
	if (item_kind(item_get_lengths(item)) != ITEM_COUNTER ||
	    !empty_cell(worker, count, &draft, item)) {
		index_unlock(&lock);
		/* It may be pending, and is nothing now. */
		atomic_store(&draft.item->version, 0);
		store_draft_abort(worker, &draft);
		return count->status == STORE_UNKNOWN;
	}
	heat_set(store, offset_of(store, draft.item), heat_get(store, offset_of(store, item)));
	if (item_expiry(item))
		life_note_expiry(store, offset_of(store, draft.item), item_expiry(item));
	if (count->info)
		life_describe(store, draft.item, count->info);
	put_replace(worker, &draft, &lock, &slot);
	return true;
}

/* The bucket is locked, and unlocked afterwards. */
static bool count_in_cell(struct store_worker *worker, struct count *count, struct index_lock *lock,
			  const struct item *item)
{
	struct cells *cells = &worker->store->cells;
	uint64_t cell = cell_of(item);
	int64_t now, then, found = atomic_load(&cells->cells[cell]);

	do {
		now = found;
		then = decide(count, now) ? count->after : now;
		if (store_cell_is_large(then) && count->status == STORE_OK) {
			index_unlock(lock);
			return leave_cell(worker, count);
		}
		/* A refusal, too, is decided on what an adapter says: memory may lag behind it. */
		if ((count->status == STORE_OK || cells->swap) &&
		    !cells_swap(cells, cell, now, then, &found)) {
			count->status = STORE_UNKNOWN;
			break;
		}
	} while (found != now);
	if (count->status == STORE_OK && count->info)
		life_describe(worker->store, item, count->info);
	index_unlock(lock);
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Operations
 */

static void run(struct store_worker *worker, struct count *count)
{
	struct store *store = worker->store;
	uint64_t hash = store_hash(store, count->key, count->key_length);
	bool is_done;

	do {
		struct index_lock lock;
		struct index_slot slot;

		if (!life_lock_key(worker, hash, count->key, count->key_length, &lock, &slot))
			is_done = count_from_nothing(worker, count);
		else if (item_kind(item_get_lengths(slot_item(store, &slot))) == ITEM_COUNTER)
			is_done = count_in_cell(worker, count, &lock, slot_item(store, &slot));
		else
			is_done = count_text(worker, count, &lock, slot_item(store, &slot));
	} while (!is_done);
}

enum store_status store_add(struct store_worker *worker, const void *key, size_t key_length,
			    int64_t delta, int64_t *sum, struct store_info *info)
{
	struct count count = {.key = key, .key_length = key_length, .delta = delta, .info = info};

	if (key_length < 1 || key_length > STORE_MAX_KEY)
		return STORE_KEY_LENGTH;
	run(worker, &count);
	if (count.status == STORE_OK)
		*sum = count.after;
	return count.status;
}

enum store_status store_swap(struct store_worker *worker, const void *key, size_t key_length,
			     int64_t expected, int64_t desired, int64_t *found)
{
	struct count count = {.key = key,
			      .key_length = key_length,
			      .is_swap = true,
			      .expected = expected,
			      .desired = desired};

	if (key_length < 1 || key_length > STORE_MAX_KEY)
		return STORE_KEY_LENGTH;
	run(worker, &count);
	if (count.status == STORE_OK || count.status == STORE_CONFLICT)
		*found = count.before;
	return count.status;
}
