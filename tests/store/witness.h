/*
 * Witness: what those who read a store may find, told by those who write to it.
 *
 * A table in memory that all processes of a test share has an entry for each key. Every put and
 * every delete of a key has a sequence number of that key. A writer says which one it begins, and
 * after the store has answered that it is done. A reader looks before it reads, and holds what it
 * got against that: the value must be whole, of this key, not older than what was answered or what
 * any reader got before it began, not younger than what was begun, and not expired.
 *
 * A value carries key number, sequence and length, and a pattern over all of the rest that depends
 * on them, so no byte can be wrong without being noticed. Each key has one writer.
 */
#ifndef TESTS_STORE_WITNESS_H
#define TESTS_STORE_WITNESS_H

#include <stdatomic.h>

#include "harness/test.h"

#define WITNESS_MAX_KEY	  320u
#define WITNESS_MIN_VALUE 24u
/* Half of all operations are on these, so that readers and writers meet. */
#define WITNESS_HOT 16u

struct witness_key {
	uint64_t next;		   /* the writer's own: the last sequence it used */
	_Atomic uint64_t begun;	   /* put or delete that is under way, or the last one */
	_Atomic uint64_t answered; /* the last one that was done */
	_Atomic uint64_t seen;	   /* the highest that a reader got */
	/* When that which was answered expires, with its sequence; 0: never, or not certain now. */
	_Atomic uint64_t end;
	_Atomic bool is_delete; /* what is begun */
};

struct witness {
	atomic_bool stop;     /* all are to end */
	atomic_bool is_still; /* the writers have ended */
	_Atomic uint64_t limit;
	uint64_t count;
	unsigned kept_of_two; /* keys that are never deleted or lost: none, every second, all */
	struct witness_key keys[];
};

/* For `count` keys, of which `limit` are in use at first. */
struct witness *witness_create(uint64_t count, uint64_t limit, unsigned kept_of_two);

size_t witness_make_key(uint64_t number, uint8_t key[WITNESS_MAX_KEY]);
void witness_make_value(uint64_t number, uint64_t sequence, void *value, size_t length);

uint64_t witness_pick(const struct witness *witness, struct test_rng *rng);

static inline bool witness_is_kept(const struct witness *witness, uint64_t number)
{
	return number % 2 < witness->kept_of_two;
}

/*
 * Writers.
 */

/* Before a put or a delete: its sequence. */
uint64_t witness_begin(struct witness *witness, uint64_t number, bool is_delete);
/* It is done; when the value expires, 0: never. */
void witness_answer(struct witness *witness, uint64_t number, uint64_t sequence,
		    uint64_t expires_ms);
/* It was refused, and nothing has changed. */
void witness_refuse(struct witness *witness, uint64_t number);
/* Before the time to live is changed, and after. */
void witness_touch(struct witness *witness, uint64_t number);
void witness_touched(struct witness *witness, uint64_t number, uint64_t expires_ms);

/*
 * Readers.
 */

struct witness_look {
	uint64_t number;
	uint64_t now_ms;
	uint64_t end;
	uint64_t answered;
	uint64_t floor;
};

/* Before reading. now_ms: store time. */
struct witness_look witness_look(const struct witness *witness, uint64_t number, uint64_t now_ms);
/* What was read: fails the test if it is wrong. */
void witness_check(struct witness *witness, const struct witness_look *look, const void *value,
		   size_t length);
/* The same without time: whether the value is whole and of this key; its sequence, 0: it is not. */
uint64_t witness_parse(uint64_t number, const void *value, size_t length);

/* Ends the test for everybody. All that says "wrong data" comes from here. */
#define WITNESS_FAIL(witness, ...)                                                                 \
	do {                                                                                       \
		atomic_store(&(witness)->stop, true);                                              \
		TEST_FAIL("wrong data: " __VA_ARGS__);                                             \
	} while (0)

#endif
