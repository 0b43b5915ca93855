/*
 * Cells: the words of 8 bytes that peers count in by themselves.
 *
 * They lie in memory that peers may have atomic rights to, apart from the arena, which peers may
 * only read. A cell goes round like this:
 *
 *	never used, or free -> used by a counter -> retired -> free
 *
 * A peer that was told a cell may add to it at any moment, also after its counter has ended. Hence
 * a cell that ends is overwritten with STORE_COUNTER_GONE, by which a late addition is noticed, and
 * stays retired until store_cells_release() says that no peer knows it any more.
 *
 * New cells are taken in the order of their numbers, and free ones before new ones, so that memory
 * of which the kernel gives pages at their first use grows with the counters.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/internal.h"

#define NO_LINK UINT32_MAX
/* Of a cell that restore has found a counter for. */
#define ADOPTED 1u

enum rmr_status cells_init(struct cells *cells, const struct store_options *options)
{
	*cells = (struct cells){.cells = options->cells,
				.are_private = options->cells_are_private,
				.swap = options->cell_swap,
				.argument = options->cell_argument,
				.free = NO_LINK,
				.retired_first = NO_LINK,
				.retired_last = NO_LINK};
	spin_lock_init(&cells->lock);
	cells->count = options->cells ? options->cells_size / sizeof(*cells->cells) : 0;
	if (cells->count > NO_LINK)
		cells->count = NO_LINK;
	if (cells->count == 0)
		return RMR_OK;
	cells->links = calloc(cells->count, sizeof(*cells->links));
	if (!cells->links)
		return error_set(RMR_NO_MEMORY, "a list of %" PRIu64 " counters", cells->count);
	return RMR_OK;
}

void cells_fini(struct cells *cells)
{
	free(cells->links);
	*cells = (struct cells){0};
}

uint64_t cell_of(const struct item *item)
{
	uint64_t cell;

	memcpy(&cell, item_value((struct item *)item), sizeof(cell));
	return cell;
}

int64_t cells_read(const struct store *store, const struct item *item)
{
	return atomic_load(&store->cells.cells[cell_of(item)]);
}

/* ------------------------------------------------------------------------------------------
 * Round and round. The lock is held where a list is changed.
 */

static void push_free(struct cells *cells, uint32_t cell)
{
	cells->links[cell] = cells->free;
	cells->free = cell;
	cells->free_count++;
}

static void push_retired(struct cells *cells, uint32_t cell)
{
	cells->links[cell] = NO_LINK;
	if (cells->retired_last == NO_LINK)
		cells->retired_first = cell;
	else
		cells->links[cells->retired_last] = cell;
	cells->retired_last = cell;
	cells->retired_end++;
}

static uint32_t pop_retired(struct cells *cells)
{
	uint32_t cell = cells->retired_first;

	cells->retired_first = cells->links[cell];
	if (cells->retired_first == NO_LINK)
		cells->retired_last = NO_LINK;
	cells->retired_begin++;
	return cell;
}

uint64_t cells_take(struct cells *cells)
{
	uint64_t cell = STORE_NO_CELL;

	spin_lock_take(&cells->lock);
	if (cells->free != NO_LINK) {
		cell = cells->free;
		cells->free = cells->links[cell];
		cells->free_count--;
	} else if (cells->next < cells->count) {
		cell = cells->next++;
	} else {
		cells->were_missed = true;
	}
	spin_lock_give(&cells->lock);
	return cell;
}

void cells_give(struct cells *cells, uint64_t cell)
{
	spin_lock_take(&cells->lock);
	push_free(cells, (uint32_t)cell);
	spin_lock_give(&cells->lock);
}

bool cells_swap(struct cells *cells, uint64_t cell, int64_t expected, int64_t desired,
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

	while (cells->swap && cells_swap(cells, cell, now, STORE_COUNTER_GONE, &found)) {
		if (found == now)
			return;
		now = found;
	}
	/* By the CPU; or what swaps for us has failed, and peers cannot reach the cell by it. */
	atomic_store(&cells->cells[cell], STORE_COUNTER_GONE);
}

void cells_retire(struct store *store, const struct item *item)
{
	struct cells *cells = &store->cells;
	uint64_t cell = cell_of(item);

	end_cell(cells, cell);
	spin_lock_take(&cells->lock);
	if (cells->are_private)
		push_free(cells, (uint32_t)cell);
	else
		push_retired(cells, (uint32_t)cell);
	spin_lock_give(&cells->lock);
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
	while (cells->retired_begin < cells->retired_end && cells->retired_begin < ticket) {
		uint32_t cell = pop_retired(cells);

		if (cell < cells->barred)
			cells->lost++;
		else
			push_free(cells, cell);
	}
	spin_lock_give(&cells->lock);
}

void store_cells_bar(struct store *store)
{
	spin_lock_take(&store->cells.lock);
	store->cells.barred = store->cells.next;
	spin_lock_give(&store->cells.lock);
}

void cells_count(struct cells *cells, struct store_cells *look)
{
	spin_lock_take(&cells->lock);
	*look = (struct store_cells){
		.count = cells->count,
		.retired = cells->retired_end - cells->retired_begin,
		.lost = cells->lost,
		.were_missed = cells->were_missed,
	};
	look->used = cells->next - cells->free_count - look->retired - look->lost;
	spin_lock_give(&cells->lock);
}

void store_cells_look(struct store *store, struct store_cells *look)
{
	cells_count(&store->cells, look);
	if (!look->were_missed)
		return;
	spin_lock_take(&store->cells.lock);
	store->cells.were_missed = false;
	spin_lock_give(&store->cells.lock);
}

/* ------------------------------------------------------------------------------------------
 * Restore. The cells below `next` that no counter has become free afterwards.
 */

bool cells_adopt(struct store *store, const struct item *item)
{
	struct cells *cells = &store->cells;
	uint64_t cell = cell_of(item);

	if (item_value_length(item_get_lengths(item)) != sizeof(cell) || cell >= cells->count ||
	    cells->links[cell] == ADOPTED || store_cell_is_gone(atomic_load(&cells->cells[cell])))
		return false;
	cells->links[cell] = ADOPTED;
	if (cells->next <= cell)
		cells->next = cell + 1;
	return true;
}

void cells_disown(struct store *store, const struct item *item)
{
	store->cells.links[cell_of(item)] = 0;
}

void cells_adopted(struct store *store)
{
	struct cells *cells = &store->cells;

	for (uint64_t i = cells->next; i-- > 0;) {
		if (cells->links[i] != ADOPTED)
			push_free(cells, (uint32_t)i);
	}
}
