/*
 * Counters: numbers that peers add to by themselves.
 *
 * A counter is an item whose value is the number of a cell; the count is in the cell, in memory
 * that peers may have atomic rights to, apart from the arena, which they may only read. Here the
 * bucket is locked while something is added, so that the cell cannot be given to another key
 * meanwhile; a peer that has the cell's address is not held up by that, and for its
 * sake the cell of a counter that ends is overwritten with STORE_COUNTER_GONE, by which a late
 * addition notices, and is not used again until store_cells_release() says that nobody has it any
 * more.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/internal.h"

#define MAX_DIGITS 20

enum rmr_status cells_init(struct cells *cells, const struct store_options *options)
{
	*cells = (struct cells){.cells = options->cells,
				.are_private = options->cells_are_private,
				.swap = options->cell_swap,
				.argument = options->cell_argument};
	spin_lock_init(&cells->lock);
	cells->count = options->cells ? options->cells_size / sizeof(*cells->cells) : 0;
	if (cells->count > UINT32_MAX)
		cells->count = UINT32_MAX;
	if (cells->count == 0)
		return RMR_OK;
	cells->free = calloc(cells->count, sizeof(*cells->free));
	cells->retired = calloc(cells->count, sizeof(*cells->retired));
	if (!cells->free || !cells->retired)
		return error_set(RMR_NO_MEMORY, "lists of %" PRIu64 " counters", cells->count);
	return RMR_OK;
}

void cells_fini(struct cells *cells)
{
	free(cells->free);
	free(cells->retired);
	*cells = (struct cells){0};
}

static uint64_t cell_of(const struct item *item)
{
	uint64_t cell;

	memcpy(&cell, item_value((struct item *)item), sizeof(cell));
	return cell;
}

/* STORE_NO_CELL: none is free. */
static uint64_t take_cell(struct cells *cells)
{
	uint64_t cell = STORE_NO_CELL;

	spin_lock_take(&cells->lock);
	if (cells->free_count)
		cell = cells->free[--cells->free_count];
	else if (cells->next < cells->count)
		cell = cells->next++;
	spin_lock_give(&cells->lock);
	return cell;
}

/* Of a cell that nobody ever saw. */
static void give_cell(struct cells *cells, uint64_t cell)
{
	spin_lock_take(&cells->lock);
	cells->free[cells->free_count++] = (uint32_t)cell;
	spin_lock_give(&cells->lock);
}

/* *found is `expected`, or what was there instead. False: it cannot be told what happened. */
static bool swap_cell(struct cells *cells, uint64_t cell, int64_t expected, int64_t desired,
		      int64_t *found)
{
	if (cells->swap)
		return cells->swap(cells->argument, cell, expected, desired, found);
	*found = expected;
	(void)atomic_compare_exchange_strong(&cells->cells[cell], found, desired);
	return true;
}

/* Overwrites a cell that peers may still add to: their additions come before, or find it gone. */
static void end_cell(struct cells *cells, uint64_t cell)
{
	int64_t now = atomic_load(&cells->cells[cell]), found = now;

	while (cells->swap && swap_cell(cells, cell, now, STORE_COUNTER_GONE, &found)) {
		if (found == now)
			return;
		now = found;
	}
	/* By the CPU; or what swaps for us has failed, and peers cannot reach the cell by it. */
	atomic_store(&cells->cells[cell], STORE_COUNTER_GONE);
}

static void retire_cell(struct cells *cells, uint64_t cell)
{
	end_cell(cells, cell);
	spin_lock_take(&cells->lock);
	if (cells->are_private)
		cells->free[cells->free_count++] = (uint32_t)cell;
	else
		cells->retired[cells->retired_end++ % cells->count] = (uint32_t)cell;
	spin_lock_give(&cells->lock);
}

void cells_retire(struct store *store, const struct item *item)
{
	retire_cell(&store->cells, cell_of(item));
}

uint64_t store_cells_ticket(struct store *store)
{
	uint64_t ticket;

	spin_lock_take(&store->cells.lock);
	ticket = store->cells.retired_end;
	spin_lock_give(&store->cells.lock);
	return ticket;
}

void store_cells_release(struct store *store, uint64_t ticket)
{
	struct cells *cells = &store->cells;

	spin_lock_take(&cells->lock);
	while (cells->retired_begin < cells->retired_end && cells->retired_begin < ticket)
		cells->free[cells->free_count++] =
			cells->retired[cells->retired_begin++ % cells->count];
	spin_lock_give(&cells->lock);
}

int64_t cells_read(const struct store *store, const struct item *item)
{
	return atomic_load(&store->cells.cells[cell_of(item)]);
}

size_t cells_format(const struct store *store, const struct item *item, char text[24])
{
	return (size_t)snprintf(text, 24, "%" PRId64, cells_read(store, item));
}

/* The cells below `next` that no counter has become free afterwards: `retired` marks those that are
 * used meanwhile. */
bool cells_adopt(struct store *store, const struct item *item)
{
	struct cells *cells = &store->cells;
	uint64_t cell = cell_of(item);

	if (item_value_length(item_get_lengths(item)) != sizeof(cell) || cell >= cells->count ||
	    cells->retired[cell] || atomic_load(&cells->cells[cell]) < STORE_COUNTER_MIN)
		return false;
	cells->retired[cell] = 1;
	if (cells->next <= cell)
		cells->next = cell + 1;
	return true;
}

void cells_disown(struct store *store, const struct item *item)
{
	store->cells.retired[cell_of(item)] = 0;
}

void cells_adopted(struct store *store)
{
	struct cells *cells = &store->cells;

	for (uint64_t i = 0; i < cells->next; i++) {
		if (!cells->retired[i])
			cells->free[cells->free_count++] = (uint32_t)i;
		cells->retired[i] = 0;
	}
}

/* ------------------------------------------------------------------------------------------
 * Operations
 */

static bool is_in_range(int64_t number)
{
	return number >= STORE_COUNTER_MIN && number <= STORE_COUNTER_MAX;
}

/* The number that the value is the decimal text of. */
static bool parse(const uint8_t *value, size_t length, int64_t *number)
{
	char text[MAX_DIGITS + 1], *end;

	/* strtoll() would skip a sign or white space. */
	if (length == 0 || length > MAX_DIGITS ||
	    (value[0] != '-' && (value[0] < '0' || value[0] > '9')))
		return false;
	memcpy(text, value, length);
	text[length] = '\0';
	*number = strtoll(text, &end, 10);
	return *end == '\0' && end == text + length && is_in_range(*number);
}

/* Adds in a cell that peers add to as well. */
static enum store_status add_to_cell(struct cells *cells, uint64_t cell, int64_t delta,
				     int64_t *sum)
{
	int64_t now, then, found = atomic_load(&cells->cells[cell]);

	do {
		now = found;
		/* Peers may have made anything of it. */
		if (__builtin_add_overflow(now, delta, &then) || !is_in_range(then))
			return STORE_OUT_OF_RANGE;
		if (!swap_cell(cells, cell, now, then, &found))
			return STORE_UNKNOWN;
	} while (found != now);
	*sum = then;
	return STORE_OK;
}

/* The counter of the key, if there is one; its bucket is locked then. */
static enum store_status lock_counter(struct store_worker *worker, const void *key,
				      size_t key_length, struct index_lock *lock,
				      struct item **item)
{
	struct store *store = worker->store;
	struct index_slot slot;

	if (!life_lock_key(worker, store_hash(store, key, key_length), key, key_length, lock,
			   &slot))
		return STORE_NOT_FOUND;
	*item = slot_item(store, &slot);
	if (item_kind(item_get_lengths(*item)) == ITEM_COUNTER)
		return STORE_OK;
	index_unlock(lock);
	return STORE_CONFLICT;
}

/* Makes a counter with this count, if the key is as `put` says. */
static enum store_status create(struct store_worker *worker, struct store_put *put, int64_t count,
				struct store_info *info)
{
	struct store *store = worker->store;
	uint64_t cell = take_cell(&store->cells);
	struct store_draft draft;
	enum store_status status;

	if (cell == STORE_NO_CELL)
		return STORE_NO_MEMORY;
	put->value_length = sizeof(cell);
	status = store_draft_begin(worker, put, &draft);
	if (status == STORE_OK) {
		item_write_key(draft.item, put->key, put->key_length, sizeof(cell), ITEM_COUNTER);
		memcpy(draft.value, &cell, sizeof(cell));
		atomic_store(&store->cells.cells[cell], count);
		status = store_draft_commit(worker, put, &draft, info);
	}
	if (status != STORE_OK)
		give_cell(&store->cells, cell);
	return status;
}

/* Turns the text of a number into a counter that starts from it. STORE_CONFLICT, STORE_NOT_FOUND:
 * somebody else changed it meanwhile. */
static enum store_status convert(struct store_worker *worker, const void *key, size_t key_length,
				 int64_t delta, int64_t *sum, struct store_info *info)
{
	struct store_put put = {.key = key, .key_length = key_length};
	uint8_t text[MAX_DIGITS];
	struct store_info old;
	enum store_status status = store_get(worker, key, key_length, text, sizeof(text), &old);
	int64_t number, sum_of_both;
	uint64_t now;

	/* It has become a counter meanwhile, whose text this is. Made into another one, it would
	 * lose what others count in its cell until then. */
	if (status == STORE_OK && old.cell != STORE_NO_CELL)
		return STORE_CONFLICT;
	if (status == STORE_NO_ROOM ||
	    (status == STORE_OK && !parse(text, old.value_length, &number)))
		return STORE_NOT_A_NUMBER;
	if (status != STORE_OK)
		return status;
	if (__builtin_add_overflow(number, delta, &sum_of_both) || !is_in_range(sum_of_both))
		return STORE_OUT_OF_RANGE;
	now = store_clock_ms(worker->store);
	if (old.expires_ms)
		put.ttl_ms = old.expires_ms > now ? old.expires_ms - now : 1;
	put.condition = STORE_IF_VERSION;
	put.version = old.version;
	status = create(worker, &put, sum_of_both, info);
	if (status == STORE_OK)
		*sum = sum_of_both;
	return status;
}

enum store_status store_add(struct store_worker *worker, const void *key, size_t key_length,
			    int64_t delta, int64_t *sum, struct store_info *info)
{
	if (key_length < 1 || key_length > STORE_MAX_KEY)
		return STORE_KEY_LENGTH;
	for (;;) {
		struct store_put put = {
			.key = key, .key_length = key_length, .condition = STORE_IF_ABSENT};
		struct index_lock lock;
		struct item *item;
		enum store_status status = lock_counter(worker, key, key_length, &lock, &item);

		if (status == STORE_OK) {
			status = add_to_cell(&worker->store->cells, cell_of(item), delta, sum);
			if (status == STORE_OK && info)
				life_describe(worker->store, item, info);
			index_unlock(&lock);
			return status;
		}
		if (status == STORE_CONFLICT)
			status = convert(worker, key, key_length, delta, sum, info);
		else if (!is_in_range(delta))
			status = STORE_OUT_OF_RANGE;
		else if ((status = create(worker, &put, delta, info)) == STORE_OK)
			*sum = delta;
		/* Whoever came between made it something else: look again. */
		if (status != STORE_CONFLICT && status != STORE_EXISTS && status != STORE_NOT_FOUND)
			return status;
	}
}

enum store_status store_swap(struct store_worker *worker, const void *key, size_t key_length,
			     int64_t expected, int64_t desired, int64_t *found)
{
	struct index_lock lock;
	struct item *item;
	enum store_status status;

	if (key_length < 1 || key_length > STORE_MAX_KEY)
		return STORE_KEY_LENGTH;
	if (!is_in_range(desired))
		return STORE_OUT_OF_RANGE;
	status = lock_counter(worker, key, key_length, &lock, &item);
	if (status == STORE_CONFLICT)
		return STORE_NOT_A_NUMBER;
	if (status != STORE_OK)
		return status;
	if (!swap_cell(&worker->store->cells, cell_of(item), expected, desired, found))
		status = STORE_UNKNOWN;
	else if (*found != expected)
		status = STORE_CONFLICT;
	index_unlock(&lock);
	return status;
}
