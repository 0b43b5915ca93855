/*
 * The store against a plain table, operation by operation: millions of random ones, of all kinds.
 *
 * The table holds for each key what the store must answer. With eviction the store may have lost
 * any key, but what it still has must be right: a key that is missing is then taken out of the
 * table. Values carry a pattern that the table can make again from a seed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "store/layout.h"

struct entry {
	bool exists;
	bool is_counter;
	uint64_t version;
	uint64_t seed;
	uint64_t length;
	uint64_t expires_ms;
	int64_t count;
	bool seen;
};

struct model {
	struct test_store test;
	struct test_rng rng;
	bool may_lose; /* the store evicts */
	uint64_t keys;
	struct entry *entries;
	uint64_t last_version;
	unsigned pins;
	size_t longest;
	uint8_t *value;
	uint8_t *expected;
};

static size_t make_key(uint64_t number, uint8_t key[STORE_MAX_KEY])
{
	size_t length = 4 + number * 7 % 60;

	if (number % 1000 == 7)
		length = STORE_MAX_KEY - number % 3;
	memset(key, (int)(number % 251), length);
	memcpy(key, &number, 4);
	return length;
}

static void make_value(uint64_t seed, uint8_t *value, size_t length)
{
	uint64_t state = seed;

	for (size_t i = 0; i < length; i += 8) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		memcpy(value + i, &state, length - i < 8 ? length - i : 8);
	}
	/* Nothing that could be taken for a number. */
	if (length)
		value[0] |= 0x80;
}

static bool is_alive(const struct entry *entry)
{
	return entry->exists && (entry->expires_ms == 0 || entry->expires_ms > test_now_ms);
}

/* The store says that the key is not there. */
static void check_missing(struct model *model, struct entry *entry)
{
	if (is_alive(entry) && !model->may_lose)
		TEST_FAIL("a key that was put is not there");
	entry->exists = false;
}

static void check_info(const struct entry *entry, const struct store_info *info)
{
	CHECK(is_alive(entry));
	CHECK_EQ(info->version, entry->version);
	CHECK_EQ(info->expires_ms, entry->expires_ms);
	if (entry->is_counter) {
		CHECK_EQ(info->value_length, snprintf(NULL, 0, "%" PRId64, entry->count));
	} else {
		CHECK_EQ(info->cell, STORE_NO_CELL);
		CHECK_EQ(info->value_length, entry->length);
	}
}

static size_t pick_length(struct model *model)
{
	uint64_t kind = test_rng_below(&model->rng, 100);
	size_t limit = kind < 5 ? 1 : kind < 80 ? 200 : kind < 98 ? 9000 : model->longest;

	return test_rng_below(&model->rng, limit < model->longest ? limit : model->longest);
}

static void do_get(struct model *model, uint64_t number)
{
	struct entry *entry = &model->entries[number];
	uint8_t key[STORE_MAX_KEY];
	size_t key_length = make_key(number, key);
	size_t room = test_rng_below(&model->rng, 8) ? model->longest : 40;
	struct store_info info;
	enum store_status status =
		store_get(model->test.worker, key, key_length, model->value, room, &info);

	if (status == STORE_NOT_FOUND) {
		check_missing(model, entry);
		return;
	}
	check_info(entry, &info);
	if (entry->is_counter) {
		CHECK_EQ(status, STORE_OK);
		model->value[info.value_length] = '\0';
		CHECK_EQ(strtoll((char *)model->value, NULL, 10), entry->count);
	} else if (entry->length > room) {
		CHECK_EQ(status, STORE_NO_ROOM);
	} else {
		CHECK_EQ(status, STORE_OK);
		make_value(entry->seed, model->expected, entry->length);
		CHECK_MEM(model->value, model->expected, entry->length);
	}
}

static void did_put(struct model *model, struct entry *entry, const struct store_put *put,
		    uint64_t seed, const struct store_info *info)
{
	CHECK(info->version > (is_alive(entry) ? entry->version : 0));
	*entry = (struct entry){.exists = true,
				.version = info->version,
				.seed = seed,
				.length = put->value_length,
				.expires_ms = put->ttl_ms ? test_now_ms + put->ttl_ms : 0,
				.seen = entry->seen};
	if (info->version > model->last_version)
		model->last_version = info->version;
}

static void do_put(struct model *model, uint64_t number)
{
	struct entry *entry = &model->entries[number];
	uint8_t key[STORE_MAX_KEY];
	uint64_t seed = test_rng_next(&model->rng);
	struct store_put put = {.key = key,
				.key_length = make_key(number, key),
				.value = model->value,
				.value_length = pick_length(model),
				.condition = (enum store_condition)test_rng_below(&model->rng, 3)};
	struct store_info info;
	enum store_status status;

	if (test_rng_below(&model->rng, 4) == 0)
		put.ttl_ms = 1 + test_rng_below(&model->rng, 2000);
	put.version = test_rng_below(&model->rng, 3) ? entry->version : 12345;
	make_value(seed, model->value, put.value_length);
	status = store_put(model->test.worker, &put, &info);
	switch (status) {
	case STORE_OK:
		if (put.condition == STORE_IF_ABSENT)
			check_missing(model, entry);
		if (put.condition == STORE_IF_VERSION)
			CHECK(is_alive(entry) && entry->version == put.version);
		did_put(model, entry, &put, seed, &info);
		break;
	case STORE_EXISTS:
		CHECK_EQ(put.condition, STORE_IF_ABSENT);
		check_info(entry, &info);
		break;
	case STORE_CONFLICT:
		CHECK_EQ(put.condition, STORE_IF_VERSION);
		check_info(entry, &info);
		CHECK(info.version != put.version);
		break;
	case STORE_NOT_FOUND:
		CHECK_EQ(put.condition, STORE_IF_VERSION);
		check_missing(model, entry);
		break;
	default:
		CHECK_EQ(status, STORE_NO_MEMORY);
		/* What is pinned cannot be evicted, nor what the condition is about. */
		CHECK(!model->may_lose || model->pins ||
		      (put.condition != STORE_ALWAYS && is_alive(entry)));
		break;
	}
}

static void do_delete(struct model *model, uint64_t number)
{
	struct entry *entry = &model->entries[number];
	uint8_t key[STORE_MAX_KEY];
	size_t key_length = make_key(number, key);
	bool any = test_rng_below(&model->rng, 2);
	uint64_t version = any ? 0 : test_rng_below(&model->rng, 3) ? entry->version : 54321;
	struct store_info info;
	enum store_status status =
		store_delete(model->test.worker, key, key_length, version, &info);

	if (status == STORE_NOT_FOUND) {
		check_missing(model, entry);
	} else if (status == STORE_CONFLICT) {
		check_info(entry, &info);
		CHECK(version != entry->version);
	} else {
		CHECK_EQ(status, STORE_OK);
		CHECK(is_alive(entry) && (version == 0 || version == entry->version));
		entry->exists = false;
	}
}

static void do_expire(struct model *model, uint64_t number)
{
	struct entry *entry = &model->entries[number];
	uint8_t key[STORE_MAX_KEY];
	size_t key_length = make_key(number, key);
	uint64_t ttl_ms = test_rng_below(&model->rng, 3) * 700;
	struct store_info info;
	enum store_status status = store_expire(model->test.worker, key, key_length, ttl_ms, &info);

	if (status == STORE_NOT_FOUND) {
		check_missing(model, entry);
		return;
	}
	CHECK_EQ(status, STORE_OK);
	CHECK(is_alive(entry));
	entry->expires_ms = ttl_ms ? test_now_ms + ttl_ms : 0;
	check_info(entry, &info);
}

static void do_stat(struct model *model, uint64_t number)
{
	uint8_t key[STORE_MAX_KEY];
	struct store_info info;

	if (store_stat(model->test.worker, key, make_key(number, key), &info) == STORE_OK)
		check_info(&model->entries[number], &info);
	else
		check_missing(model, &model->entries[number]);
}

static void do_add(struct model *model, uint64_t number)
{
	struct entry *entry = &model->entries[number];
	uint8_t key[STORE_MAX_KEY];
	int64_t delta = (int64_t)test_rng_below(&model->rng, 1000) - 500, sum;
	struct store_info info;
	enum store_status status;

	/* Some numbers are too large for a cell. */
	if (test_rng_below(&model->rng, 4) == 0)
		delta *= (int64_t)1 << 54;
	status = store_add(model->test.worker, key, make_key(number, key), delta, &sum, &info);
	if (status == STORE_OUT_OF_RANGE) {
		CHECK(is_alive(entry) && entry->is_counter);
		CHECK(__builtin_add_overflow(entry->count, delta, &sum));
		return;
	}
	if (status == STORE_NOT_A_NUMBER) {
		CHECK(is_alive(entry) && !entry->is_counter);
		return;
	}
	if (status == STORE_NO_MEMORY)
		return;
	CHECK_EQ(status, STORE_OK);
	/* What was lost counts from 0, for ever. If it was 0 before, there is no difference. */
	if (model->may_lose && sum == delta && info.expires_ms == 0)
		entry->exists = false;
	if (is_alive(entry)) {
		CHECK(entry->is_counter);
		entry->count += delta;
		/* It stays as long as the number is in its cell. */
		CHECK(info.version >= entry->version);
		entry->version = info.version;
	} else {
		check_missing(model, entry);
		*entry = (struct entry){.exists = true,
					.is_counter = true,
					.version = info.version,
					.count = delta,
					.seen = entry->seen};
	}
	CHECK_EQ(sum, entry->count);
	store_cells_release(model->test.store, store_cells_ticket(model->test.store));
}

static void do_pinned(struct model *model, uint64_t number)
{
	struct entry *entry = &model->entries[number];
	uint8_t key[STORE_MAX_KEY];
	size_t key_length = make_key(number, key);
	struct store_view view;

	if (store_pin(model->test.worker, key, key_length, &view) != STORE_OK) {
		check_missing(model, entry);
		return;
	}
	check_info(entry, &view.info);
	if (test_rng_below(&model->rng, 2) &&
	    store_delete(model->test.worker, key, key_length, 0, NULL) == STORE_OK)
		entry->exists = false;
	/* Others come and go, the view stays. */
	model->pins++;
	for (int i = 0; i < 3; i++)
		do_put(model, test_rng_below(&model->rng, model->keys));
	model->pins--;
	entry = &model->entries[number];
	if (view.info.cell == STORE_NO_CELL && entry->version == view.info.version &&
	    !entry->is_counter) {
		make_value(entry->seed, model->expected, view.length);
		CHECK_MEM(view.value, model->expected, view.length);
	}
	store_unpin(model->test.worker, &view);
}

static void step(struct model *model)
{
	static void (*const operations[])(struct model *, uint64_t) = {
		do_get,	   do_get,    do_put,  do_put, do_put,
		do_delete, do_expire, do_stat, do_add, do_pinned};
	uint64_t kind = test_rng_below(&model->rng, sizeof(operations) / sizeof(operations[0]));

	if (test_rng_below(&model->rng, 50) == 0)
		test_now_ms += test_rng_below(&model->rng, 20);
	if (test_rng_below(&model->rng, 100) == 0)
		store_tick(model->test.worker, 1000);
	operations[kind](model, test_rng_below(&model->rng, model->keys));
}

static bool see(void *context, const void *key, size_t key_length, const struct store_info *info)
{
	struct model *model = context;
	uint8_t expected[STORE_MAX_KEY];
	uint32_t number;

	memcpy(&number, key, sizeof(number));
	CHECK(number < model->keys);
	CHECK_EQ(key_length, make_key(number, expected));
	CHECK_MEM(key, expected, key_length);
	check_info(&model->entries[number], info);
	model->entries[number].seen = true;
	return true;
}

/* Everything that the table has the store has, by asking and by scanning, and nothing else. */
static void check_all(struct model *model)
{
	uint64_t cursor = 0, alive = 0;

	for (uint64_t i = 0; i < model->keys; i++) {
		model->entries[i].seen = false;
		do_get(model, i);
		alive += is_alive(&model->entries[i]);
	}
	do {
		store_scan(model->test.worker, &cursor, 100, see, model);
	} while (cursor);
	for (uint64_t i = 0; i < model->keys; i++)
		CHECK_EQ(model->entries[i].seen, is_alive(&model->entries[i]));
	test_store_check(&model->test);
}

static void run(size_t size, enum store_on_full on_full, uint64_t keys, size_t longest,
		uint64_t steps)
{
	struct model model = {.keys = keys, .longest = longest, .may_lose = on_full == STORE_EVICT};
	struct store_stats stats;

	/* One thread: there is nothing to race with. */
	if (TEST_HAS_TSAN)
		steps /= 10;
	test_rng_init(&model.rng, size + keys);
	test_store_open(&model.test, size, on_full);
	model.test.options.clock_ms = test_clock_ms;
	store_worker_close(model.test.worker);
	store_destroy(model.test.store);
	memset(model.test.memory, 0, size);
	CHECK_OK(store_create(&model.test.options, &model.test.store));
	CHECK_OK(store_worker_open(model.test.store, &model.test.worker));
	model.entries = calloc(keys, sizeof(*model.entries));
	model.value = malloc(longest + 16);
	model.expected = malloc(longest + 16);
	CHECK(model.entries && model.value && model.expected);
	for (uint64_t i = 1; i <= steps; i++) {
		step(&model);
		if (i % (steps / 8) == 0) {
			check_all(&model);
			if (i / (steps / 8) % 3 == 2)
				test_store_restart(&model.test);
			check_all(&model);
		}
	}
	store_flush(model.test.worker);
	store_stats(model.test.store, &stats);
	CHECK_EQ(stats.keys, 0);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		CHECK_EQ(stats.classes[i].items + stats.classes[i].used + stats.classes[i].wasted,
			 0);
	test_store_check(&model.test);
	free(model.entries);
	free(model.value);
	free(model.expected);
	test_store_close(&model.test);
}

static void test_small_keys_fit(void)
{
	run(64 * MIB, STORE_REJECT, 2000, 20000, 400000);
}

static void test_growing(void)
{
	run(256 * MIB, STORE_REJECT, 100000, 300, 2000000);
}

static void test_full_and_rejecting(void)
{
	run(4 * MIB, STORE_REJECT, 3000, 200000, 400000);
}

static void test_full_and_evicting(void)
{
	run(4 * MIB, STORE_EVICT, 3000, 200000, 400000);
}

static void test_smallest(void)
{
	run(STORE_MIN_SIZE, STORE_EVICT, 1000, 700000, 300000);
}

static void test_long_values(void)
{
	run(32 * MIB, STORE_EVICT, 300, 12 * MIB, 20000);
}

static const struct test tests[] = {
	{"everything_fits", test_small_keys_fit},
	{"growing", test_growing, TEST_SLOW, 120},
	{"full_and_rejecting", test_full_and_rejecting},
	{"full_and_evicting", test_full_and_evicting},
	{"the_smallest_store", test_smallest},
	{"long_values", test_long_values, 0, 120},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_model", tests, TEST_COUNT(tests));
}
