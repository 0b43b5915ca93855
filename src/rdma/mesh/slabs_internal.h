/*
 * Slabs: what slabs.c and slabs_check.c share.
 *
 *	memory:      | partition 0                    | partition 1                    | ...
 *	partition:   | slab | slab | slab | ...  rest |
 *	slab:        | item | item | item | ...  rest |		items of one class
 *
 * Nothing is written into the memory, so all that is known of it lies beside it: for each slab a
 * struct slab, for each 64 bytes of the memory a link. The link of an item that is in use says so;
 * that of one that was freed names the next free one of the same slab. Items that were never used
 * since the slab was taken have no links yet: they are those from `fresh` on. So taking a slab
 * costs nothing, however many items it has, and links that nobody uses are never touched: their
 * memory is only reserved.
 *
 * What always holds, with the lock of the partition (slabs_is_valid):
 *	- a slab without items in use is in the partition's free list, or was never taken: it is one
 *	  of those from `fresh` on
 *	- a slab with items in use and free ones is in its class's list, one without free ones in
 *	  none
 *	- used + links in the free chain == fresh, fresh <= items of the class
 */
#ifndef RDMA_MESH_SLABS_INTERNAL_H
#define RDMA_MESH_SLABS_INTERNAL_H

#include <remora/mesh.h>
#include <stdalign.h>

#include "base/spin_lock.h"

#define SLABS_ALIGN	     64u
#define SLABS_CLASSES_MAX    512
#define SLABS_SLAB_MIN	     4096u
#define SLABS_SLAB_MAX	     ((size_t)1 << 37) /* its items are counted in 32 bits */
#define SLABS_PARTITIONS_MAX 1024u
#define SLABS_NONE	     UINT32_MAX
#define SLABS_IN_USE	     (UINT32_MAX - 1)

struct slab {
	uint32_t next, prev;  /* in the free list, or in the class's; SLABS_NONE: the end */
	uint32_t first_free;  /* item; SLABS_NONE: none was freed */
	uint32_t fresh, used; /* items */
	int16_t slab_class;   /* -1: free */
	bool is_listed;	      /* in its class's list */
};

struct partition {
	alignas(64) struct spin_lock lock;
	char *base;
	struct slab *slabs;
	uint32_t *links;			/* items_max of them for each slab */
	uint32_t first_free, fresh, free_count; /* slabs; fresh: taken at least once */
	size_t items, item_bytes;		/* in use */
	uint32_t partial[SLABS_CLASSES_MAX];	/* of each class, slabs that have room */
};

struct rmr_slabs {
	size_t slab_size, partition_size, items_max;
	uint32_t slab_count; /* of a partition */
	unsigned partition_count;
	int class_count;
	size_t item_size[SLABS_CLASSES_MAX];
	struct partition *partitions;
	struct slab *slabs;
	uint32_t *links;
	size_t links_size;
};

/* Goes through everything, with all locks: false if something does not hold. For tests. */
bool slabs_is_valid(struct rmr_slabs *slabs);

#endif
