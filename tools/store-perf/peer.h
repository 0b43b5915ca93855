/*
 * Peer: a Redis or a memcached, to fill with the same keys and to give the same trace.
 *
 * Somebody else starts it (scripts/bench-store does) and says by which Unix socket it is reached.
 * Requests are pipelined: all of a batch are sent, then all answers are taken. A batch is small
 * enough for the buffers of the socket, so neither side can wait for the other for ever.
 */
#ifndef STORE_PERF_PEER_H
#define STORE_PERF_PEER_H

#include "common/keys.h"
#include "perf.h"

#define PEER_BATCH 64u

enum peer_kind { PEER_REDIS, PEER_MEMCACHED };

struct peer {
	enum peer_kind kind;
	int fd;
	int pid; /* of the server, as the kernel tells it; 0: unknown */
	size_t key_size, value_size;
	uint8_t *value;
	char *out;
	size_t out_length, out_room;
	char *in;
	size_t in_at, in_length, in_room;
};

RMR_MUST_CHECK enum rmr_status peer_open(struct peer *peer, enum peer_kind kind, const char *path,
					 const struct perf_config *config);
/* Legal on a zeroed one. */
void peer_close(struct peer *peer);

/* Stores `count` keys, at most PEER_BATCH, from `first` on; those that `skip` is not true for.
 * skip may be NULL. */
RMR_MUST_CHECK enum rmr_status peer_set(struct peer *peer, const struct block *block, size_t first,
					size_t count, const bool *skip);

/* Redis only. Asks for the same, and checks the values of those that are there. */
RMR_MUST_CHECK enum rmr_status peer_get(struct peer *peer, const struct block *block, size_t first,
					size_t count, bool *hit);

/* What the server says of itself, and the kernel of it. */
struct peer_usage {
	uint64_t items;
	uint64_t memory;   /* bytes for items and index, by its own account */
	uint64_t resident; /* bytes of the process; 0: unknown */
	uint64_t limit;	   /* Redis: maxmemory */
};

RMR_MUST_CHECK enum rmr_status peer_usage(struct peer *peer, struct peer_usage *usage);

#endif
