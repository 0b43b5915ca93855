/*
 * Slabs: a memory manager over memory that peers may write and read. See slabs_internal.h for how
 * it is kept. Any thread; each partition has a lock of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "rdma/mesh/slabs_internal.h"

/* ------------------------------------------------------------------------------------------
 * Opening
 */

/* Each about an eighth larger than the one before; the last is the slab. */
static void make_classes(struct rmr_slabs *slabs)
{
	size_t size = SLABS_ALIGN;

	while (size < slabs->slab_size) {
		slabs->item_size[slabs->class_count++] = size;
		size += (size / 8 + SLABS_ALIGN - 1) & ~(size_t)(SLABS_ALIGN - 1);
	}
	slabs->item_size[slabs->class_count++] = slabs->slab_size;
}

static enum rmr_status check(const void *memory, size_t size, unsigned partitions, size_t slab_size)
{
	if (!memory)
		return error_set(RMR_INVALID, "no memory is given");
	if (partitions < 1 || partitions > SLABS_PARTITIONS_MAX)
		return error_set(RMR_INVALID, "%u partitions; there can be 1 to %u", partitions,
				 SLABS_PARTITIONS_MAX);
	if (slab_size < SLABS_SLAB_MIN || slab_size > SLABS_SLAB_MAX ||
	    (slab_size & (slab_size - 1)))
		return error_set(RMR_INVALID, "slabs of %zu bytes; a power of two from %u is meant",
				 slab_size, SLABS_SLAB_MIN);
	if (size / partitions < slab_size)
		return error_set(
			RMR_INVALID,
			"%u partitions of %zu bytes together; not one slab of %zu fits into "
			"each",
			partitions, size, slab_size);
	if (size / partitions / slab_size >= SLABS_IN_USE)
		return error_set(RMR_LIMIT, "more than %u slabs in a partition", SLABS_IN_USE - 1);
	return RMR_OK;
}

static void init_partition(struct rmr_slabs *slabs, unsigned number, char *memory)
{
	struct partition *partition = &slabs->partitions[number];
	size_t first = (size_t)number * slabs->slab_count;

	spin_lock_init(&partition->lock);
	partition->base = memory + number * slabs->partition_size;
	partition->slabs = slabs->slabs + first;
	partition->links = slabs->links + first * slabs->items_max;
	partition->first_free = SLABS_NONE;
	partition->free_count = slabs->slab_count;
	for (int i = 0; i < SLABS_CLASSES_MAX; i++)
		partition->partial[i] = SLABS_NONE;
}

static enum rmr_status take_bookkeeping(struct rmr_slabs *slabs)
{
	size_t count = (size_t)slabs->slab_count * slabs->partition_count;

	slabs->partitions = aligned_alloc(64, slabs->partition_count * sizeof(struct partition));
	slabs->slabs = calloc(count, sizeof(struct slab));
	slabs->links_size = count * slabs->items_max * sizeof(uint32_t);
	slabs->links = mmap(NULL, slabs->links_size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (slabs->links == MAP_FAILED)
		slabs->links = NULL;
	if (!slabs->partitions || !slabs->slabs || !slabs->links)
		return error_set(RMR_NO_MEMORY, "no memory for the books of %zu slabs", count);
	for (unsigned i = 0; i < slabs->partition_count; i++)
		slabs->partitions[i] = (struct partition){0};
	return RMR_OK;
}

enum rmr_status rmr_slabs_open(void *memory, size_t size, unsigned partitions, size_t slab_size,
			       struct rmr_slabs **out)
{
	size_t skip = -(uintptr_t)memory & (SLABS_ALIGN - 1);
	struct rmr_slabs *slabs;
	enum rmr_status status;

	status = check(memory, size > skip ? size - skip : 0, partitions, slab_size);
	if (status != RMR_OK)
		return error_context(status, "opening slabs");
	slabs = calloc(1, sizeof(*slabs));
	if (!slabs)
		return error_set(RMR_NO_MEMORY, "no memory for slabs");
	slabs->slab_size = slab_size;
	slabs->partition_count = partitions;
	slabs->partition_size = ((size - skip) / partitions) & ~(size_t)(SLABS_ALIGN - 1);
	slabs->slab_count = (uint32_t)(slabs->partition_size / slab_size);
	slabs->items_max = slab_size / SLABS_ALIGN;
	make_classes(slabs);
	status = take_bookkeeping(slabs);
	if (status != RMR_OK) {
		rmr_slabs_close(slabs);
		return error_context(status, "opening slabs");
	}
	for (unsigned i = 0; i < partitions; i++)
		init_partition(slabs, i, (char *)memory + skip);
	*out = slabs;
	return RMR_OK;
}

void rmr_slabs_close(struct rmr_slabs *slabs)
{
	if (!slabs)
		return;
	if (slabs->links)
		munmap(slabs->links, slabs->links_size);
	free(slabs->slabs);
	free(slabs->partitions);
	free(slabs);
}

/* ------------------------------------------------------------------------------------------
 * Classes
 */

int rmr_slabs_class(const struct rmr_slabs *slabs, unsigned partition, size_t size)
{
	int low = 0, high = slabs->class_count - 1;

	if (partition >= slabs->partition_count)
		return error_set(RMR_INVALID, "partition %u; there are %u", partition,
				 slabs->partition_count);
	if (size == 0)
		return error_set(RMR_INVALID, "an item of 0 bytes");
	if (size > slabs->slab_size)
		return error_set(RMR_TOO_LONG, "an item of %zu bytes; slabs have %zu", size,
				 slabs->slab_size);
	while (low < high) {
		int middle = (low + high) / 2;

		if (slabs->item_size[middle] < size)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

size_t rmr_slabs_item_size(const struct rmr_slabs *slabs, int slab_class)
{
	return slab_class < 0 || slab_class >= slabs->class_count ? 0
								  : slabs->item_size[slab_class];
}

/* ------------------------------------------------------------------------------------------
 * Slabs in lists. With the lock.
 */

/* Puts a slab before the others of a list. */
static void push(struct partition *partition, uint32_t *list, uint32_t number)
{
	struct slab *slab = &partition->slabs[number];

	slab->prev = SLABS_NONE;
	slab->next = *list;
	if (*list != SLABS_NONE)
		partition->slabs[*list].prev = number;
	*list = number;
}

static void unlink_slab(struct partition *partition, uint32_t *list, uint32_t number)
{
	const struct slab *slab = &partition->slabs[number];

	if (slab->prev == SLABS_NONE)
		*list = slab->next;
	else
		partition->slabs[slab->prev].next = slab->next;
	if (slab->next != SLABS_NONE)
		partition->slabs[slab->next].prev = slab->prev;
}

/* A free slab for a class, in its list. SLABS_NONE: there is none. */
static uint32_t take_slab(struct rmr_slabs *slabs, struct partition *partition, int slab_class)
{
	uint32_t number = partition->first_free;
	struct slab *slab;

	if (number != SLABS_NONE)
		unlink_slab(partition, &partition->first_free, number);
	else if (partition->fresh < slabs->slab_count)
		number = partition->fresh++;
	else
		return SLABS_NONE;
	partition->free_count--;
	slab = &partition->slabs[number];
	*slab = (struct slab){
		.first_free = SLABS_NONE, .slab_class = (int16_t)slab_class, .is_listed = true};
	push(partition, &partition->partial[slab_class], number);
	return number;
}

static void give_slab(struct partition *partition, uint32_t number)
{
	struct slab *slab = &partition->slabs[number];

	if (slab->is_listed)
		unlink_slab(partition, &partition->partial[slab->slab_class], number);
	slab->is_listed = false;
	slab->slab_class = -1;
	push(partition, &partition->first_free, number);
	partition->free_count++;
}

/* ------------------------------------------------------------------------------------------
 * Items
 */

static char *take_item(struct rmr_slabs *slabs, struct partition *partition, int slab_class)
{
	size_t item_size = slabs->item_size[slab_class];
	uint32_t number = partition->partial[slab_class], item;
	struct slab *slab;
	uint32_t *links;

	if (number == SLABS_NONE)
		number = take_slab(slabs, partition, slab_class);
	if (number == SLABS_NONE)
		return NULL;
	slab = &partition->slabs[number];
	links = partition->links + number * slabs->items_max;
	item = slab->first_free;
	if (item != SLABS_NONE)
		slab->first_free = links[item];
	else
		item = slab->fresh++;
	links[item] = SLABS_IN_USE;
	slab->used++;
	partition->items++;
	partition->item_bytes += item_size;
	if (slab->first_free == SLABS_NONE && slab->fresh == slabs->slab_size / item_size) {
		unlink_slab(partition, &partition->partial[slab_class], number);
		slab->is_listed = false;
	}
	return partition->base + number * slabs->slab_size + item * item_size;
}

char *rmr_slabs_alloc(struct rmr_slabs *slabs, unsigned partition, int slab_class)
{
	char *item;

	if (partition >= slabs->partition_count || slab_class < 0 ||
	    slab_class >= slabs->class_count) {
		error_set(RMR_INVALID, "partition %u, class %d; there are %u and %d", partition,
			  slab_class, slabs->partition_count, slabs->class_count);
		return NULL;
	}
	spin_lock_take(&slabs->partitions[partition].lock);
	item = take_item(slabs, &slabs->partitions[partition], slab_class);
	spin_lock_give(&slabs->partitions[partition].lock);
	return item;
}

static enum rmr_status give_item(struct rmr_slabs *slabs, struct partition *partition,
				 uintptr_t offset, int slab_class)
{
	size_t item_size = slabs->item_size[slab_class];
	uint32_t number = (uint32_t)(offset / slabs->slab_size);
	size_t at = offset % slabs->slab_size, item = at / item_size;
	struct slab *slab = &partition->slabs[number];
	uint32_t *links = partition->links + number * slabs->items_max;

	if (number >= partition->fresh || slab->slab_class != slab_class || at % item_size ||
	    item >= slab->fresh || links[item] != SLABS_IN_USE)
		return RMR_INVALID;
	links[item] = slab->first_free;
	slab->first_free = (uint32_t)item;
	slab->used--;
	partition->items--;
	partition->item_bytes -= item_size;
	if (slab->used == 0) {
		give_slab(partition, number);
	} else if (!slab->is_listed) {
		slab->is_listed = true;
		push(partition, &partition->partial[slab_class], number);
	}
	return RMR_OK;
}

enum rmr_status rmr_slabs_free(struct rmr_slabs *slabs, unsigned partition, char *item,
			       int slab_class)
{
	enum rmr_status status = RMR_INVALID;
	struct partition *owner;
	uintptr_t offset;

	if (partition >= slabs->partition_count || slab_class < 0 ||
	    slab_class >= slabs->class_count)
		return error_set(RMR_INVALID, "partition %u, class %d; there are %u and %d",
				 partition, slab_class, slabs->partition_count, slabs->class_count);
	owner = &slabs->partitions[partition];
	offset = (uintptr_t)item - (uintptr_t)owner->base;
	if (offset < (uintptr_t)slabs->slab_count * slabs->slab_size) {
		spin_lock_take(&owner->lock);
		status = give_item(slabs, owner, offset, slab_class);
		spin_lock_give(&owner->lock);
	}
	if (status != RMR_OK)
		return error_set(RMR_INVALID, "%p is no item of partition %u and class %d in use",
				 (void *)item, partition, slab_class);
	return RMR_OK;
}

void rmr_slabs_get_stats(const struct rmr_slabs *slabs, struct rmr_slabs_stats *stats)
{
	*stats = (struct rmr_slabs_stats){.slabs = (size_t)slabs->slab_count *
						   slabs->partition_count};
	for (unsigned i = 0; i < slabs->partition_count; i++) {
		struct partition *partition = &slabs->partitions[i];

		spin_lock_take(&partition->lock);
		stats->free_slabs += partition->free_count;
		stats->items += partition->items;
		stats->item_bytes += partition->item_bytes;
		spin_lock_give(&partition->lock);
	}
}
