#include "onlooker.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/item.h"
#include "store/probe.h"
#include "store/racy.h"
#include "store/reader.h"
#include "store/size_class.h"

/* Keys whose places are remembered: the hot ones, and some more. */
#define REMEMBERED 64u
/* Copies in single bytes are for short pieces. */
#define MAX_BYTEWISE 8192u

struct place {
	uint64_t offset, version, lengths;
};

struct onlooker {
	const struct onlooker_job *job;
	struct witness *witness;
	struct reader reader;
	struct test_rng rng;
	uint8_t *copy;
	size_t copy_size;
	struct place places[REMEMBERED];
	bool is_calm; /* nobody writes any more */
};

enum outcome {
	OUTCOME_HIT,
	OUTCOME_MISS,
	OUTCOME_ASK,
};

static void count(_Atomic uint64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void count_outcome(struct onlooker *me, enum outcome outcome)
{
	struct onlooker_counts *counts = me->job->counts;

	count(outcome == OUTCOME_HIT	? &counts->hits
	      : outcome == OUTCOME_MISS ? &counts->misses
					: &counts->asks);
}

/* ------------------------------------------------------------------------------------------
 * Copies as a network makes them: in any order, with any pauses
 */

static void rest_a_little(struct onlooker *me)
{
	if (test_rng_below(&me->rng, 4))
		sched_yield();
	else
		usleep((useconds_t)test_rng_below(&me->rng, 300));
}

static void copy_bytes_backwards(uint8_t *to, const uint8_t *from, size_t length)
{
	while (length-- > 0)
		racy_copy(to + length, from + length, 1);
}

static void fetch(struct onlooker *me, void *to, uint64_t offset, size_t length)
{
	const uint8_t *from = me->reader.memory + offset;
	size_t half = test_rng_below(&me->rng, length + 1);

	switch (me->is_calm ? 0 : test_rng_below(&me->rng, 16)) {
	case 0:
		if (length <= MAX_BYTEWISE) {
			copy_bytes_backwards(to, from, length);
			break;
		}
		/* fall through */
	case 1:
		racy_copy((uint8_t *)to + half, from + half, length - half);
		racy_copy(to, from, half);
		break;
	case 2:
		racy_copy((uint8_t *)to + half, from + half, length - half);
		rest_a_little(me);
		racy_copy(to, from, half);
		break;
	case 3:
		racy_copy(to, from, half);
		rest_a_little(me);
		racy_copy((uint8_t *)to + half, from + half, length - half);
		break;
	default:
		racy_copy(to, from, length);
		break;
	}
}

/* ------------------------------------------------------------------------------------------
 * Near
 */

/* Where it was found, if it was; `place` may be NULL. */
static enum outcome read_near(struct onlooker *me, uint64_t number, struct place *place)
{
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	size_t room = !me->is_calm && test_rng_below(&me->rng, 32) == 0 ? WITNESS_MIN_VALUE
									: me->copy_size;
	struct witness_look look = witness_look(me->witness, number, reader_clock_ms(&me->reader));
	struct reader_item item;

	switch (reader_get(&me->reader, key, key_length, me->copy, room, &item)) {
	case READER_FOUND:
		witness_check(me->witness, &look, me->copy, item_value_length(item.lengths));
		if (place)
			*place = (struct place){item.offset, item.version, item.lengths};
		return OUTCOME_HIT;
	case READER_NO_ROOM:
		if (room != WITNESS_MIN_VALUE || item_value_length(item.lengths) <= room)
			WITNESS_FAIL(me->witness, "no room for %" PRIu64 " bytes in %zu",
				     item_value_length(item.lengths), room);
		return OUTCOME_HIT;
	case READER_MISS:
		if (look.answered && witness_is_kept(me->witness, number))
			WITNESS_FAIL(me->witness,
				     "key %" PRIu64 " is missing, though it was always there",
				     number);
		return OUTCOME_MISS;
	default:
		return OUTCOME_ASK;
	}
}

/* ------------------------------------------------------------------------------------------
 * Far
 */

/* Whether the bytes that were fetched are the key's item, at whatever time. */
static bool is_ours(const struct item *item, uint64_t offset, size_t fetched, const uint8_t *key,
		    size_t key_length)
{
	return item_is_complete(item, offset, fetched) &&
	       item_kind(item_get_lengths(item)) == ITEM_VALUE &&
	       item_key_length(item_get_lengths(item)) == key_length &&
	       memcmp(item->key, key, key_length) == 0;
}

/* The copy is the item: is it alive, and what does the witness say? */
static enum outcome judge_copy(struct onlooker *me, const struct witness_look *look)
{
	struct item *item = (struct item *)me->copy;
	uint64_t expiry = item_expiry(item);

	if (expiry && reader_clock_ms(&me->reader) >= expiry)
		return OUTCOME_ASK;
	witness_check(me->witness, look, item_value(item),
		      item_value_length(item_get_lengths(item)));
	return OUTCOME_HIT;
}

static bool fetch_candidate(struct onlooker *me, uint64_t slot, const uint8_t *key,
			    size_t key_length)
{
	uint64_t offset = slot_offset(slot), size = me->reader.size;
	uint64_t length = size_class_size(slot_class(slot));

	/* The slot may be torn as well. */
	if (offset < me->reader.first_item || offset > size - sizeof(struct item))
		return false;
	if (length > size - offset)
		length = size - offset;
	if (length > me->copy_size)
		length = me->copy_size;
	fetch(me, me->copy, offset, length);
	if (is_ours((struct item *)me->copy, offset, length, key, key_length))
		return true;
	count(&me->job->counts->torn);
	return false;
}

static uint64_t find_bucket(const struct onlooker *me, const struct probe *probe)
{
	uint64_t offset;

	if (probe->bucket >> SEGMENT_BITS >= me->reader.page_count)
		return 0;
	offset = probe_place(probe->in_overflow ? me->reader.overflow_directory
						: me->reader.directory,
			     probe->bucket);
	return offset < me->reader.size ? offset : 0;
}

static enum outcome read_far(struct onlooker *me, uint64_t number)
{
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	struct witness_look look = witness_look(me->witness, number, reader_clock_ms(&me->reader));
	uint64_t bucket_count = SEGMENT_BUCKETS;
	struct bucket bucket;
	enum probe_step step;
	struct probe probe;
	bool any = false;

	/* Often the count that was true at the beginning. */
	if (test_rng_below(&me->rng, 2))
		bucket_count = atomic_load(&me->reader.header->bucket_count);
	probe_begin(&probe, probe_hash(key, key_length, me->reader.hash_seed), bucket_count);
	do {
		uint64_t offset = find_bucket(me, &probe);

		if (!offset)
			return OUTCOME_ASK;
		fetch(me, &bucket, offset, sizeof(bucket));
		step = probe_look(&probe, &bucket);
		for (unsigned i = 0; i < probe.candidate_count; i++) {
			any = true;
			if (fetch_candidate(me, probe.candidates[i], key, key_length))
				return judge_copy(me, &look);
		}
	} while (step == PROBE_GO_ON);
	return any || step == PROBE_CONFUSED ? OUTCOME_ASK : OUTCOME_MISS;
}

/* ------------------------------------------------------------------------------------------
 * Remembering
 */

static enum outcome read_at_place(struct onlooker *me, uint64_t number)
{
	const struct place *place = &me->places[number];
	uint64_t length = item_size_of(place->lengths);
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	struct witness_look look = witness_look(me->witness, number, reader_clock_ms(&me->reader));

	if (!place->version)
		return OUTCOME_ASK;
	fetch(me, me->copy, place->offset, length);
	if (is_ours((struct item *)me->copy, place->offset, length, key, key_length) &&
	    item_version((struct item *)me->copy) == place->version)
		return judge_copy(me, &look);
	count(&me->job->counts->torn);
	return OUTCOME_ASK;
}

/* Who has just seen the new value must not find the old one where it was. */
static enum outcome read_remembering(struct onlooker *me, uint64_t number)
{
	struct place place = {0};
	enum outcome outcome;

	number %= REMEMBERED;
	if (test_rng_below(&me->rng, 2)) {
		outcome = read_at_place(me, number);
		if (outcome == OUTCOME_HIT)
			return outcome;
	}
	outcome = read_near(me, number, &place);
	if (outcome == OUTCOME_HIT && place.version != me->places[number].version)
		read_at_place(me, number);
	me->places[number] = place;
	return outcome;
}

/* ------------------------------------------------------------------------------------------ */

static enum outcome read_one(struct onlooker *me, uint64_t number)
{
	switch (me->job->kind) {
	case ONLOOKER_NEAR:
		return read_near(me, number, NULL);
	case ONLOOKER_FAR:
		return read_far(me, number);
	default:
		return read_remembering(me, number);
	}
}

static void open_eyes(struct onlooker *me, const struct onlooker_job *job)
{
	void *memory = mmap(NULL, job->size, PROT_READ, MAP_SHARED, job->fd, 0);

	CHECK(memory != MAP_FAILED);
	*me = (struct onlooker){.job = job, .witness = job->witness};
	CHECK_OK(reader_init(&me->reader, memory, job->size));
	test_rng_init(&me->rng, 1000 + job->stream);
	/* An item, as long as its size class may say. */
	me->copy_size = (job->longest + 2 * WITNESS_MAX_KEY + 64) * 9 / 8 & ~(size_t)63;
	me->copy = aligned_alloc(64, me->copy_size);
	CHECK(me->copy);
	/* Nothing but what a client has. */
	munmap(job->memory, job->size);
}

/* Nothing changes any more, so there is nothing that could excuse. */
static void read_all(struct onlooker *me)
{
	struct witness *witness = me->witness;
	uint64_t limit = me->job->kind == ONLOOKER_REMEMBERS ? REMEMBERED : witness->limit;

	me->is_calm = true;
	for (uint64_t i = 0; i < limit && i < witness->limit; i++) {
		bool was_answered = atomic_load(&witness->keys[i].answered) != 0;

		if (read_one(me, i) != OUTCOME_HIT && was_answered && witness_is_kept(witness, i))
			WITNESS_FAIL(witness, "key %" PRIu64 " cannot be found at rest", i);
	}
}

void onlooker_run(void *context)
{
	struct onlooker *me = malloc(sizeof(*me));

	CHECK(me);
	open_eyes(me, context);
	while (!atomic_load(&me->witness->stop)) {
		for (int i = 0; i < 16; i++)
			count_outcome(me, read_one(me, witness_pick(me->witness, &me->rng)));
	}
	while (!atomic_load(&me->witness->is_still))
		test_sleep_ms(1);
	read_all(me);
	free(me->copy);
	free(me);
}
