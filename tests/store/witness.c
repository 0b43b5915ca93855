#include "witness.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

/* Of a sequence, in witness_key.end. */
#define END_BITS 20
#define END_MASK (((uint64_t)1 << END_BITS) - 1)

struct value_head {
	uint64_t number;
	uint64_t sequence;
	uint64_t length;
};

static_assert(sizeof(struct value_head) == WITNESS_MIN_VALUE, "a value begins with this");

struct witness *witness_create(uint64_t count, uint64_t limit, unsigned kept_of_two)
{
	size_t size = sizeof(struct witness) + count * sizeof(struct witness_key);
	struct witness *witness =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(witness != MAP_FAILED);
	witness->count = count;
	witness->limit = limit;
	witness->kept_of_two = kept_of_two;
	return witness;
}

size_t witness_make_key(uint64_t number, uint8_t key[WITNESS_MAX_KEY])
{
	size_t length = 8 + number * 5 % 40;

	if (number % 64 == 9)
		length = WITNESS_MAX_KEY - number % 7;
	memset(key, (int)(number % 251), length);
	memcpy(key, &number, sizeof(number));
	return length;
}

static uint64_t mix(uint64_t number, uint64_t sequence)
{
	uint64_t state = (number * 0x9e3779b97f4a7c15u) ^ (sequence * 0xd1342543de82ef95u);

	return (state ^ state >> 29) * 0xbf58476d1ce4e5b9u;
}

/* The word at this byte of the pattern. */
static uint64_t pattern_at(uint64_t base, size_t at)
{
	return base + at * 0x94d049bb133111ebu;
}

void witness_make_value(uint64_t number, uint64_t sequence, void *value, size_t length)
{
	const struct value_head head = {number, sequence, length};
	uint64_t base = mix(number, sequence), word;
	uint8_t *bytes = value;
	size_t at = sizeof(head);

	memcpy(value, &head, sizeof(head));
	for (; at + sizeof(word) <= length; at += sizeof(word)) {
		word = pattern_at(base, at);
		memcpy(bytes + at, &word, sizeof(word));
	}
	word = pattern_at(base, at);
	memcpy(bytes + at, &word, length - at);
}

uint64_t witness_parse(uint64_t number, const void *value, size_t length)
{
	const uint8_t *bytes = value;
	struct value_head head;
	uint64_t base, word, differing = 0;
	size_t at = sizeof(head);

	if (length < sizeof(head))
		return 0;
	memcpy(&head, value, sizeof(head));
	if (head.number != number || head.length != length)
		return 0;
	base = mix(number, head.sequence);
	for (; at + sizeof(word) <= length; at += sizeof(word)) {
		memcpy(&word, bytes + at, sizeof(word));
		differing |= word ^ pattern_at(base, at);
	}
	word = pattern_at(base, at);
	return differing || memcmp(bytes + at, &word, length - at) ? 0 : head.sequence;
}

uint64_t witness_pick(const struct witness *witness, struct test_rng *rng)
{
	uint64_t limit = atomic_load(&witness->limit);

	return test_rng_below(rng,
			      test_rng_below(rng, 2) && limit > WITNESS_HOT ? WITNESS_HOT : limit);
}

/* ------------------------------------------------------------------------------------------
 * Writers. All is sequentially consistent: this is to judge the store's ordering, not to have one
 * of its own.
 */

uint64_t witness_begin(struct witness *witness, uint64_t number, bool is_delete)
{
	struct witness_key *key = &witness->keys[number];
	uint64_t sequence = ++key->next;

	atomic_store(&key->end, 0);
	atomic_store(&key->is_delete, is_delete);
	atomic_store(&key->begun, sequence);
	return sequence;
}

static uint64_t pack_end(uint64_t sequence, uint64_t expires_ms)
{
	return expires_ms ? expires_ms << END_BITS | (sequence & END_MASK) : 0;
}

void witness_answer(struct witness *witness, uint64_t number, uint64_t sequence,
		    uint64_t expires_ms)
{
	struct witness_key *key = &witness->keys[number];

	atomic_store(&key->answered, sequence);
	atomic_store(&key->end, pack_end(sequence, expires_ms));
}

void witness_refuse(struct witness *witness, uint64_t number)
{
	struct witness_key *key = &witness->keys[number];

	atomic_store(&key->begun, atomic_load(&key->answered));
}

void witness_touch(struct witness *witness, uint64_t number)
{
	atomic_store(&witness->keys[number].end, 0);
}

void witness_touched(struct witness *witness, uint64_t number, uint64_t expires_ms)
{
	struct witness_key *key = &witness->keys[number];

	atomic_store(&key->end, pack_end(atomic_load(&key->answered), expires_ms));
}

/* ------------------------------------------------------------------------------------------
 * Readers
 */

/*
 * The time was read before `end`: if the value's end had passed then, and nobody was changing it,
 * nobody can have moved it on afterwards.
 */
struct witness_look witness_look(const struct witness *witness, uint64_t number, uint64_t now_ms)
{
	const struct witness_key *key = &witness->keys[number];
	struct witness_look look = {.number = number, .now_ms = now_ms};

	look.end = atomic_load(&key->end);
	look.answered = atomic_load(&key->answered);
	look.floor = atomic_load(&key->seen);
	if (look.floor < look.answered)
		look.floor = look.answered;
	return look;
}

static void note_seen(struct witness_key *key, uint64_t sequence)
{
	uint64_t seen = atomic_load(&key->seen);

	while (seen < sequence && !atomic_compare_exchange_weak(&key->seen, &seen, sequence))
		;
}

void witness_check(struct witness *witness, const struct witness_look *look, const void *value,
		   size_t length)
{
	struct witness_key *key = &witness->keys[look->number];
	uint64_t sequence = witness_parse(look->number, value, length);
	uint64_t begun = atomic_load(&key->begun);

	if (!sequence)
		WITNESS_FAIL(witness, "torn, or of another key than %" PRIu64 " (%zu bytes)",
			     look->number, length);
	if (sequence < look->floor)
		WITNESS_FAIL(witness,
			     "stale: key %" PRIu64 ", sequence %" PRIu64 " after %" PRIu64
			     " (answered: %" PRIu64 ")",
			     look->number, sequence, look->floor, look->answered);
	if (sequence > begun)
		WITNESS_FAIL(witness,
			     "never begun: key %" PRIu64 ", sequence %" PRIu64 " of %" PRIu64,
			     look->number, sequence, begun);
	if (look->end && (look->end & END_MASK) == (sequence & END_MASK) &&
	    look->end >> END_BITS <= look->now_ms)
		WITNESS_FAIL(witness, "expired: key %" PRIu64 ", %" PRIu64 " ms ago", look->number,
			     look->now_ms - (look->end >> END_BITS));
	note_seen(key, sequence);
}
