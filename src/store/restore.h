/*
 * What store_create() and store_restore() share.
 */
#ifndef STORE_RESTORE_H
#define STORE_RESTORE_H

#include "store/internal.h"

/* Everything that is not in the caller's memory. */
RMR_MUST_CHECK enum rmr_status store_prepare(const struct store_options *options,
					     struct store **store);

/* Whether this is the header of a store in so much memory. */
bool store_plan_fits(const struct store_header *header, size_t size);

/* Given a header: pool and slabs, without any page; the page table must be zero. */
RMR_MUST_CHECK enum rmr_status store_open_parts(struct store *store);

/* Everything is in place: from now on it is a store for everyone. */
RMR_MUST_CHECK enum rmr_status store_publish(struct store *store);

#endif
