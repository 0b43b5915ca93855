/*
 * Size classes: eight to a doubling, so that neighbours are 7 to 12.5% apart.
 *
 *	class	0   1   2   3   4   5    6    7    8    9    ...
 *	size	64  72  80  88  96  104  112  120  128  144  ...
 *
 * Up to SLAB_MAX_SIZE a class is what the slabs give out. Beyond that items have pages of their
 * own, and the class only bounds the length. Pure functions.
 */
#ifndef STORE_SIZE_CLASS_H
#define STORE_SIZE_CLASS_H

#include <stdint.h>

#define SIZE_CLASS_MIN_BITS 6
#define SIZE_CLASS_COUNT    256u
#define SIZE_CLASS_MAX_SIZE ((uint64_t)15 << 34) /* of the last class: 240 GiB */
#define SLAB_MAX_SIZE	    ((uint64_t)512 << 10)
#define SLAB_CLASS_COUNT    105u /* classes up to and with SLAB_MAX_SIZE */

static inline uint64_t size_class_size(unsigned size_class)
{
	return (uint64_t)(8 + size_class % 8) << (size_class / 8 + SIZE_CLASS_MIN_BITS - 3);
}

/* The smallest class that holds `size` bytes, at most SIZE_CLASS_MAX_SIZE. */
static inline unsigned size_class_of(uint64_t size)
{
	unsigned bits;

	if (size <= (uint64_t)1 << SIZE_CLASS_MIN_BITS)
		return 0;
	/* size - 1 has `bits` + 1 bits; its upper four say the step below, hence + 1. */
	bits = 63 - (unsigned)__builtin_clzll(size - 1);
	return (bits - SIZE_CLASS_MIN_BITS) * 8 + (unsigned)((size - 1) >> (bits - 3)) - 8 + 1;
}

#endif
