#include "picture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "witness.h"

static uint64_t next_sequence = 1;

enum store_status picture_put(struct store_worker *worker, uint64_t number, size_t length,
			      uint64_t ttl_ms)
{
	uint8_t key[WITNESS_MAX_KEY];
	uint8_t *value = malloc(length);
	struct store_put put = {.key = key,
				.key_length = witness_make_key(number, key),
				.value = value,
				.value_length = length,
				.ttl_ms = ttl_ms};
	enum store_status status;

	CHECK(value);
	witness_make_value(number, next_sequence++, value, length);
	status = store_put(worker, &put, NULL);
	free(value);
	return status;
}

static bool record_key(void *context, const void *key, size_t key_length,
		       const struct store_info *info)
{
	struct picture *picture = context;
	uint8_t expected[WITNESS_MAX_KEY];
	uint64_t number;

	CHECK(key_length >= sizeof(number));
	memcpy(&number, key, sizeof(number));
	CHECK(number < picture->keys);
	CHECK_EQ(key_length, witness_make_key(number, expected));
	CHECK_MEM(key, expected, key_length);
	picture->records[number] = (struct record){.exists = true, .info = *info};
	return true;
}

static void record_value(struct store_worker *worker, uint64_t number, struct record *record)
{
	size_t room = record->info.value_length + 32;
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	uint8_t *value = malloc(room);
	struct store_info info;

	CHECK(value);
	CHECK_EQ(store_get(worker, key, key_length, value, room, &info), STORE_OK);
	CHECK_EQ(info.version, record->info.version);
	/* A number, in a cell or as text. */
	if (info.value_length < WITNESS_MIN_VALUE) {
		value[info.value_length] = '\0';
		record->count = strtoll((char *)value, NULL, 10);
	} else {
		record->sequence = witness_parse(number, value, info.value_length);
		if (!record->sequence)
			TEST_FAIL("the value of key %" PRIu64 " is broken", number);
	}
	free(value);
}

uint64_t picture_take(struct test_store *test, uint64_t keys, struct picture *picture)
{
	uint64_t cursor = 0, found = 0;

	*picture = (struct picture){.keys = keys, .records = calloc(keys, sizeof(struct record))};
	CHECK(picture->records);
	test_store_check(test);
	do {
		store_scan(test->worker, &cursor, 1000, record_key, picture);
	} while (cursor);
	for (uint64_t i = 0; i < keys; i++) {
		if (!picture->records[i].exists)
			continue;
		found++;
		record_value(test->worker, i, &picture->records[i]);
	}
	store_stats(test->store, &picture->stats);
	return found;
}

void picture_compare(const struct picture *before, const struct picture *after)
{
	for (uint64_t i = 0; i < before->keys; i++) {
		const struct record *a = &before->records[i], *b = &after->records[i];

		CHECK_EQ(b->exists, a->exists);
		CHECK_EQ(b->info.version, a->info.version);
		CHECK_EQ(b->info.value_length, a->info.value_length);
		CHECK_EQ(b->info.expires_ms, a->info.expires_ms);
		CHECK_EQ(b->info.cell, a->info.cell);
		CHECK_EQ(b->sequence, a->sequence);
		CHECK_EQ(b->count, a->count);
	}
	CHECK_EQ(after->stats.keys, before->stats.keys);
	CHECK_EQ(after->stats.cells_used, before->stats.cells_used);
	CHECK(after->stats.next_version >= before->stats.next_version);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++) {
		CHECK_EQ(after->stats.classes[i].items, before->stats.classes[i].items);
		CHECK_EQ(after->stats.classes[i].used, before->stats.classes[i].used);
	}
}

void picture_work(struct test_store *test, struct test_rng *rng, uint64_t keys, size_t longest)
{
	uint64_t number = test_rng_below(rng, keys), dice = test_rng_below(rng, 100), ttl_ms = 0;
	size_t limit = dice < 80 ? 300 : dice < 99 ? 20000 : longest;
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	enum store_status status;
	int64_t sum;

	dice = test_rng_below(rng, 100);
	/* What is to expire does so before anyone looks, or long after. */
	if (dice % 5 == 0)
		ttl_ms = test_rng_below(rng, 2) ? 1 : 3600000;
	if (dice < 15)
		status = store_delete(test->worker, key, key_length, 0, NULL);
	else if (dice < 25)
		status = store_expire(test->worker, key, key_length, ttl_ms, NULL);
	else if (dice < 40)
		status = store_add(test->worker, key, key_length,
				   dice < 28 ? STORE_CELL_MAX : (int64_t)dice, &sum, NULL);
	else
		status = picture_put(test->worker, number,
				     WITNESS_MIN_VALUE + test_rng_below(rng, limit), ttl_ms);
	CHECK(status == STORE_OK || status == STORE_NOT_FOUND || status == STORE_NOT_A_NUMBER ||
	      status == STORE_NO_MEMORY || status == STORE_OUT_OF_RANGE);
	store_cells_release(test->store, store_cells_ticket(test->store));
}

void picture_free(struct picture *picture)
{
	free(picture->records);
	*picture = (struct picture){0};
}
