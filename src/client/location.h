/*
 * Locations: where items were when they were seen last, by the hash of their key.
 *
 * A hint: whoever reads there checks the key, the version and the checksum. Only the version is
 * more than that: an item of this version has been at this offset (get.c relies on it). Two keys
 * may share a hash, and then push each other out. Entries that were wrong are dropped; a key whose
 * place changes all the time is remembered as one to ask for (doubt), until it has been quiet for
 * a while. One thread. The table starts small and doubles, up to its limit, when it is half full
 * and a new entry would push an old one out: a client that uses few keys takes little memory.
 */
#ifndef CLIENT_LOCATION_H
#define CLIENT_LOCATION_H

#include <stdbool.h>
#include <stdint.h>

#define LOCATION_WAYS	   4u
#define LOCATION_MAX_DOUBT 15u
/* From here on the server is asked. */
#define LOCATION_DOUBTFUL 4u
#define LOCATION_NO_CELL  UINT32_MAX

struct location {
	uint64_t hash;
	uint64_t offset;  /* of the item; 0: none is known */
	uint64_t version; /* that it had there */
	uint32_t size;	  /* of the item, from its first byte to its value's last */
	uint32_t cell;	  /* of a counter; LOCATION_NO_CELL: none */
	uint32_t used;	  /* when, in uses */
	uint32_t doubt;
	/* With a cell: another hash of the key, as nobody compares the key then. */
	uint64_t check;
};

struct locations {
	struct location *entries; /* NULL: nothing is remembered */
	uint32_t set_mask;
	uint32_t max_sets;   /* that it may grow to; a power of two */
	uint32_t used_count; /* entries in use */
	uint32_t now;
};

/* entries: how many it may grow to, rounded up to a power of two, at least LOCATION_WAYS. Returns
 * false when there is no memory. */
bool locations_init(struct locations *locations, uint32_t entries);
/* Legal on a zeroed one. */
void locations_fini(struct locations *locations);
/* Returns how many entries there is room for now. */
uint32_t locations_capacity(const struct locations *locations);
void locations_clear(struct locations *locations);
/* Forgets all cells. */
void locations_clear_cells(struct locations *locations);

/* NULL: unknown, or only doubt is known. Valid until the next call. */
const struct location *locations_find(struct locations *locations, uint64_t hash);

/* The same for an item that may be read at once, and nothing is noted; whoever uses it confirms
 * it. */
struct location *locations_peek(struct locations *locations, uint64_t hash);

/* An item is there: what is known of it besides stays known. */
void locations_learn(struct locations *locations, const struct location *place);
/* It was read, had this version, and was right; this is a use of it. */
void locations_confirm(struct locations *locations, uint64_t hash, uint64_t offset,
		       uint64_t version);
/* The same of one that was peeked at just now. */
void locations_confirm_found(struct locations *locations, struct location *found, uint64_t version);
/* It was wrong. */
void locations_doubt(struct locations *locations, uint64_t hash);
/* The key is gone, or was changed by ourselves: no place any more, and no doubt from that. */
void locations_forget(struct locations *locations, uint64_t hash);

#endif
