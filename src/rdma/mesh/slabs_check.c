/*
 * What always holds in slabs, gone through one by one: see slabs_internal.h. Slow, for tests.
 */
#include "rdma/mesh/slabs_internal.h"

/* Free chain and marks of one slab agree with its counts. */
static bool slab_is_valid(const struct rmr_slabs *slabs, const struct slab *slab,
			  const uint32_t *links)
{
	uint32_t items, in_use = 0, chain = 0;

	if (slab->slab_class < 0 || slab->slab_class >= slabs->class_count)
		return false;
	items = (uint32_t)(slabs->slab_size / slabs->item_size[slab->slab_class]);
	if (slab->fresh > items || slab->used == 0 || slab->used > slab->fresh)
		return false;
	for (uint32_t i = 0; i < slab->fresh; i++)
		in_use += links[i] == SLABS_IN_USE;
	for (uint32_t i = slab->first_free; i != SLABS_NONE; i = links[i]) {
		if (i >= slab->fresh || links[i] == SLABS_IN_USE || ++chain > slab->fresh)
			return false;
	}
	return in_use == slab->used && in_use + chain == slab->fresh &&
	       slab->is_listed == (slab->used < items);
}

/* A list is linked both ways, and has only slabs of its class. Counts them. */
static bool list_is_valid(const struct rmr_slabs *slabs, const struct partition *partition,
			  uint32_t first, int slab_class, uint32_t *count)
{
	uint32_t before = SLABS_NONE, length = 0;

	for (uint32_t i = first; i != SLABS_NONE; i = partition->slabs[i].next) {
		const struct slab *slab = &partition->slabs[i];

		if (i >= partition->fresh || slab->prev != before ||
		    slab->slab_class != slab_class || slab->is_listed != (slab_class >= 0) ||
		    ++length > slabs->slab_count)
			return false;
		before = i;
	}
	*count += length;
	return true;
}

static bool partition_is_valid(const struct rmr_slabs *slabs, const struct partition *partition)
{
	uint32_t free_count = 0, listed = 0, expected = 0;
	size_t items = 0, bytes = 0;

	if (partition->fresh > slabs->slab_count ||
	    !list_is_valid(slabs, partition, partition->first_free, -1, &free_count) ||
	    partition->free_count != free_count + slabs->slab_count - partition->fresh)
		return false;
	for (int i = 0; i < slabs->class_count; i++)
		if (!list_is_valid(slabs, partition, partition->partial[i], i, &listed))
			return false;
	for (uint32_t i = 0; i < partition->fresh; i++) {
		const struct slab *slab = &partition->slabs[i];

		if (slab->slab_class == -1) {
			free_count--;
			continue;
		}
		if (!slab_is_valid(slabs, slab, partition->links + i * slabs->items_max))
			return false;
		expected += slab->is_listed;
		items += slab->used;
		bytes += slab->used * slabs->item_size[slab->slab_class];
	}
	/* Each free slab was in the list once: the count is back at zero. */
	return free_count == 0 && listed == expected && items == partition->items &&
	       bytes == partition->item_bytes;
}

bool slabs_is_valid(struct rmr_slabs *slabs)
{
	bool is_valid = true;

	for (unsigned i = 0; i < slabs->partition_count && is_valid; i++) {
		struct partition *partition = &slabs->partitions[i];

		spin_lock_take(&partition->lock);
		is_valid = partition_is_valid(slabs, partition);
		spin_lock_give(&partition->lock);
	}
	return is_valid;
}
