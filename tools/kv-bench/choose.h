/*
 * Which key is next.
 *
 *	uniform		every key as often as any other
 *	zipf		rank k as often as k to the power -skew: few keys are asked for most of the
 *			time. Ranks are numbers of keys, and numbers are scrambled into keys, so the
 *			popular ones lie all over the store.
 *	latest		the same, with ranks counted back from the newest key
 *	sequential	each thread its own part of the keys, in order, over and over
 *
 * Keys that are inserted get numbers from a counter that all clients share. A key may be chosen by
 * `latest` only when it is there, and others may insert at the same time. So each thread tells the
 * least number that it is busy inserting; `visible` is the least of all, and below it all is there.
 * A thread tells a bound before it takes a number: whoever looks in between sees too little, never
 * too much. The counter, the bounds and their sum are read and written in one order (seq_cst): it
 * is the bound before the number that matters.
 */
#ifndef KV_BENCH_CHOOSE_H
#define KV_BENCH_CHOOSE_H

#include "bench.h"
#include "common/zipf.h"

#define NOT_INSERTING UINT64_MAX

struct chooser {
	enum distribution distribution;
	double skew;
	struct zipf zipf;
	uint64_t zipf_count;	  /* of ranks that zipf was made for */
	uint64_t keys;		  /* that were there from the beginning */
	uint64_t first, last, at; /* sequential: this thread's part */
};

/* For thread `index` of `count`. */
void choose_init(struct chooser *chooser, const struct pass *pass, uint64_t keys, unsigned index,
		 unsigned count);
uint64_t choose_key(struct chooser *chooser, struct dice *dice, const struct shared *shared);

/* Takes the number of a new key. inserting: this thread's bound, NOT_INSERTING if it is busy with
 * none. */
uint64_t choose_new(struct shared *shared, struct slot *slot);
/* The thread is busy with none below `oldest` any more. */
void choose_inserted(struct shared *shared, struct slot *slot, uint64_t oldest);

#endif
