/*
 * Many threads on one store: all operations on keys that they share and on keys of their own, while
 * the index grows, items are evicted, moved and swept, and workers come and go.
 *
 * What is checked. A value says which key it belongs to and repeats a word that nobody else writes.
 * A key of a thread's own has the last value that the thread put, if it is there at all; it must be
 * there if the store rejects. Versions of keys that are never deleted only grow, as each thread
 * sees them. Counters have the sum of all additions. Views do not change until they are unpinned,
 * by whichever thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"

#define THREADS	    4u
#define OWN_KEYS    1500u
#define SHARED_KEYS 500u
#define COUNTERS    20u
#define MAILBOXES   64u
#define MAX_LENGTH  300000u

enum family { OWN, STEADY, FLEETING, COUNTER };

struct key {
	uint32_t family;
	uint32_t owner;
	uint32_t number;
};

/* How a value begins; then its word follows, over and over. */
struct head {
	struct key key;
	uint32_t length;
	uint64_t word;
};

struct scene {
	struct test_store test;
	unsigned steps;
	unsigned longest; /* of most values */
	bool evicts;
	uint64_t ttl_ms; /* of fleeting keys */
	_Atomic unsigned running;
	_Atomic(struct store_view *) mailboxes[MAILBOXES];
	_Atomic int64_t sums[COUNTERS];
};

struct actor {
	struct scene *scene;
	uint32_t number;
	struct test_rng rng;
	struct store_worker *worker;
	uint8_t *buffer;
	uint64_t words[OWN_KEYS]; /* of the last value of each own key, 0: deleted */
	uint64_t versions[SHARED_KEYS];
};

/* ------------------------------------------------------------------------------------------
 * Values
 */

static void check_value(const struct key *key, const uint8_t *value, size_t length)
{
	struct head head;

	CHECK(length >= sizeof(head));
	memcpy(&head, value, sizeof(head));
	CHECK_MEM(&head.key, key, sizeof(*key));
	CHECK_EQ(head.length, length);
	for (size_t i = sizeof(head); i + 8 <= length; i += 8)
		CHECK_MEM(value + i, &head.word, 8);
}

static uint32_t pick_length(struct actor *actor)
{
	uint32_t limit = actor->scene->longest;

	if (test_rng_below(&actor->rng, 200) == 0)
		limit = MAX_LENGTH - sizeof(struct head);
	return (uint32_t)(sizeof(struct head) + test_rng_below(&actor->rng, limit));
}

static enum store_status put_key(struct actor *actor, const struct key *key,
				 enum store_condition condition, uint64_t version, uint64_t *word,
				 struct store_info *info)
{
	struct head head = {.key = *key, .length = pick_length(actor)};
	struct store_put put = {.key = key,
				.key_length = sizeof(*key),
				.value = actor->buffer,
				.value_length = head.length,
				.condition = condition,
				.version = version};

	head.word = test_rng_next(&actor->rng) | 1;
	memcpy(actor->buffer, &head, sizeof(head));
	for (size_t i = sizeof(head); i + 8 <= head.length; i += 8)
		memcpy(actor->buffer + i, &head.word, 8);
	if (key->family == FLEETING && test_rng_below(&actor->rng, 2))
		put.ttl_ms = actor->scene->ttl_ms;
	*word = head.word;
	return store_put(actor->worker, &put, info);
}

static bool get_key(struct actor *actor, const struct key *key, uint64_t *word,
		    struct store_info *info)
{
	enum store_status status =
		store_get(actor->worker, key, sizeof(*key), actor->buffer, MAX_LENGTH, info);

	if (status == STORE_NOT_FOUND)
		return false;
	CHECK_EQ(status, STORE_OK);
	check_value(key, actor->buffer, info->value_length);
	memcpy(word, actor->buffer + offsetof(struct head, word), sizeof(*word));
	return true;
}

/* ------------------------------------------------------------------------------------------
 * What actors do
 */

static void use_own(struct actor *actor)
{
	struct key key = {OWN, actor->number, (uint32_t)test_rng_below(&actor->rng, OWN_KEYS)};
	uint64_t *word = &actor->words[key.number], found;
	struct store_info info;
	enum store_status status;

	if (!get_key(actor, &key, &found, &info)) {
		CHECK(*word == 0 || actor->scene->evicts);
		*word = 0;
	} else {
		CHECK_EQ(found, *word);
	}
	if (*word && test_rng_below(&actor->rng, 4) == 0) {
		status = store_delete(actor->worker, &key, sizeof(key), info.version, NULL);
		CHECK(status == STORE_OK || (status == STORE_NOT_FOUND && actor->scene->evicts));
		*word = 0;
		return;
	}
	status = put_key(actor, &key, STORE_ALWAYS, 0, &found, &info);
	if (status == STORE_OK)
		*word = found;
	else
		CHECK_EQ(status, STORE_NO_MEMORY);
}

/* Never deleted: its versions grow. Only in stores that reject. */
static void use_steady(struct actor *actor)
{
	struct key key = {STEADY, 0, (uint32_t)test_rng_below(&actor->rng, SHARED_KEYS)};
	uint64_t *seen = &actor->versions[key.number], word;
	struct store_info info;
	enum store_status status;

	if (get_key(actor, &key, &word, &info)) {
		CHECK(info.version >= *seen);
		*seen = info.version;
	} else {
		CHECK_EQ(*seen, 0);
	}
	if (test_rng_below(&actor->rng, 2))
		return;
	status = put_key(actor, &key, *seen ? STORE_IF_VERSION : STORE_IF_ABSENT, *seen, &word,
			 &info);
	if (status == STORE_NO_MEMORY)
		return;
	CHECK(status == STORE_OK || status == (*seen ? STORE_CONFLICT : STORE_EXISTS));
	/* Of the new item, or of the one that was there first: it is newer in any case. */
	CHECK(info.version > *seen);
	*seen = info.version;
}

static void use_fleeting(struct actor *actor)
{
	struct key key = {FLEETING, 0, (uint32_t)test_rng_below(&actor->rng, SHARED_KEYS)};
	struct store_info info;
	uint64_t word;

	switch (test_rng_below(&actor->rng, 6)) {
	case 0:
	case 1:
		(void)!put_key(actor, &key, STORE_ALWAYS, 0, &word, &info);
		break;
	case 2:
		(void)!store_delete(actor->worker, &key, sizeof(key), 0, NULL);
		break;
	case 3:
		(void)!store_expire(actor->worker, &key, sizeof(key),
				    test_rng_below(&actor->rng, 2) * actor->scene->ttl_ms, NULL);
		break;
	case 4:
		if (store_stat(actor->worker, &key, sizeof(key), &info) == STORE_OK)
			store_touch(actor->worker, info.offset, info.version);
		break;
	default:
		(void)!get_key(actor, &key, &word, &info);
		break;
	}
}

static void use_counter(struct actor *actor)
{
	struct key key = {COUNTER, 0, (uint32_t)test_rng_below(&actor->rng, COUNTERS)};
	int64_t delta = (int64_t)test_rng_below(&actor->rng, 2001) - 1000, sum;
	struct store_info info;

	if (actor->scene->evicts)
		return;
	CHECK_EQ(store_add(actor->worker, &key, sizeof(key), delta, &sum, &info), STORE_OK);
	atomic_fetch_add(&actor->scene->sums[key.number], delta);
	/* And as a peer does it. There is a cell for each. */
	CHECK(info.cell != STORE_NO_CELL);
	atomic_fetch_add((_Atomic int64_t *)actor->scene->test.cells + info.cell, 3);
	atomic_fetch_add(&actor->scene->sums[key.number], 3);
}

/* Pins something and leaves the view to whoever comes by; ends the one that it finds. */
static void use_view(struct actor *actor)
{
	struct key key = {FLEETING, 0, (uint32_t)test_rng_below(&actor->rng, SHARED_KEYS)};
	struct store_view *view = calloc(1, sizeof(*view));
	struct head head;

	CHECK(view);
	if (store_pin(actor->worker, &key, sizeof(key), view) != STORE_OK) {
		free(view);
		return;
	}
	check_value(&key, view->value, view->length);
	view = atomic_exchange(&actor->scene->mailboxes[test_rng_below(&actor->rng, MAILBOXES)],
			       view);
	if (!view)
		return;
	memcpy(&head, view->value, sizeof(head));
	check_value(&head.key, view->value, view->length);
	store_unpin(actor->worker, view);
	free(view);
}

static void act(struct actor *actor, unsigned step)
{
	uint64_t kind = test_rng_below(&actor->rng, 100);

	if (kind < 40)
		use_own(actor);
	else if (kind < 60 && !actor->scene->evicts)
		use_steady(actor);
	else if (kind < 80)
		use_fleeting(actor);
	else if (kind < 90)
		use_counter(actor);
	else
		use_view(actor);
	if (step % 64 == 0)
		store_tick(actor->worker, 500);
	/* Now and then as another worker. */
	if (step % 1000 == 999) {
		store_worker_close(actor->worker);
		CHECK_OK(store_worker_open(actor->scene->test.store, &actor->worker));
	}
}

static void *run_actor(void *context)
{
	struct actor *actor = context;

	CHECK_OK(store_worker_open(actor->scene->test.store, &actor->worker));
	for (unsigned step = 0; step < actor->scene->steps; step++)
		act(actor, step);
	for (uint32_t i = 0; i < OWN_KEYS; i++) {
		struct key key = {OWN, actor->number, i};
		struct store_info info;
		uint64_t word;

		if (get_key(actor, &key, &word, &info))
			CHECK_EQ(word, actor->words[i]);
		else
			CHECK(actor->words[i] == 0 || actor->scene->evicts);
	}
	store_worker_close(actor->worker);
	atomic_fetch_sub(&actor->scene->running, 1);
	return NULL;
}

/* Puts ever new keys, so that the index grows and others are pushed out. Opens a worker for few. */
static void *run_visitor(void *context)
{
	struct scene *scene = context;
	uint64_t number = (uint64_t)1 << 32;

	while (atomic_load(&scene->running)) {
		struct store_worker *worker;

		CHECK_OK(store_worker_open(scene->test.store, &worker));
		for (int i = 0; i < 200; i++) {
			struct store_put put = {.key = &number, .key_length = sizeof(number)};
			struct store_info info;

			number++;
			if (store_put(worker, &put, NULL) == STORE_OK && !scene->evicts)
				CHECK_EQ(store_stat(worker, &number, sizeof(number), &info),
					 STORE_OK);
		}
		store_worker_close(worker);
	}
	return NULL;
}

/* ------------------------------------------------------------------------------------------
 * Scenes
 */

static void finish_scene(struct scene *scene)
{
	struct store_stats stats;

	for (unsigned i = 0; i < MAILBOXES; i++) {
		struct store_view *view = scene->mailboxes[i];

		if (view)
			store_unpin(scene->test.worker, view);
		free(view);
	}
	for (uint32_t i = 0; i < COUNTERS && !scene->evicts; i++) {
		struct key key = {COUNTER, 0, i};
		int64_t sum;

		CHECK_EQ(store_add(scene->test.worker, &key, sizeof(key), 0, &sum, NULL), STORE_OK);
		CHECK_EQ(sum, scene->sums[i]);
	}
	test_store_check(&scene->test);
	store_flush(scene->test.worker);
	store_stats(scene->test.store, &stats);
	CHECK_EQ(stats.keys, 0);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		CHECK_EQ(stats.classes[i].items + stats.classes[i].used + stats.classes[i].wasted,
			 0);
	test_store_check(&scene->test);
	test_store_close(&scene->test);
}

static void play(struct scene *scene, size_t size)
{
	struct actor *actors = calloc(THREADS, sizeof(*actors));
	pthread_t threads[THREADS], visitor;

	CHECK(actors);
	scene->steps /= TEST_HAS_TSAN ? 20 : TEST_HAS_ASAN ? 10 : 1;
	test_store_open(&scene->test, size, scene->evicts ? STORE_EVICT : STORE_REJECT);
	/* Counters first: later there may be no room for them. */
	for (uint32_t i = 0; i < COUNTERS; i++) {
		struct key key = {COUNTER, 0, i};
		int64_t sum;

		CHECK_EQ(store_add(scene->test.worker, &key, sizeof(key), 0, &sum, NULL), STORE_OK);
	}
	atomic_store(&scene->running, THREADS);
	for (uint32_t i = 0; i < THREADS; i++) {
		actors[i] = (struct actor){.scene = scene, .number = i};
		test_rng_init(&actors[i].rng, i);
		actors[i].buffer = malloc(MAX_LENGTH + 8);
		CHECK(actors[i].buffer);
		CHECK_EQ(pthread_create(&threads[i], NULL, run_actor, &actors[i]), 0);
	}
	CHECK_EQ(pthread_create(&visitor, NULL, run_visitor, scene), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
		free(actors[i].buffer);
	}
	CHECK_EQ(pthread_join(visitor, NULL), 0);
	free(actors);
	finish_scene(scene);
}

static void test_growing(void)
{
	struct scene scene = {.steps = 300000, .longest = 200, .ttl_ms = 5};

	play(&scene, 256 * MIB);
}

static void test_rejecting(void)
{
	struct scene scene = {.steps = 150000, .longest = 1500, .ttl_ms = 3};

	play(&scene, 6 * MIB);
}

static void test_evicting(void)
{
	struct scene scene = {.steps = 300000, .longest = 1500, .ttl_ms = 20, .evicts = true};

	play(&scene, 4 * MIB);
}

static void test_evicting_large(void)
{
	struct scene scene = {.steps = 40000, .longest = 60000, .ttl_ms = 20, .evicts = true};

	play(&scene, 16 * MIB);
}

static const struct test tests[] = {
	{"while_growing", test_growing},
	{"full_and_rejecting", test_rejecting},
	{"full_and_evicting", test_evicting},
	{"evicting_large_values", test_evicting_large},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_threads", tests, TEST_COUNT(tests));
}
