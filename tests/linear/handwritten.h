/*
 * Histories written by hand, legal and not: handwritten.c is their list, to be read as a
 * description of what linearizable means here.
 */
#ifndef TESTS_LINEAR_HANDWRITTEN_H
#define TESTS_LINEAR_HANDWRITTEN_H

#include "history.h"

struct handwritten {
	const char *name;
	bool is_legal;
	bool needs_first_pass;	   /* it takes all keys together to see it */
	struct history_op ops[16]; /* up to the first that is never invoked */
};

extern const struct handwritten handwritten[];
extern const size_t handwritten_count;

/* NULL: there is none of this name. */
const struct handwritten *handwritten_find(const char *name);

#endif
