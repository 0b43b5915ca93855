/*
 * Views that outlive their keys, drafts that are not seen, versions that never come again; and that
 * all of their memory comes back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"

#define MAX_PINS 32767

static uint64_t items_of(struct test_store *test)
{
	struct store_stats stats;
	uint64_t items = 0;

	store_stats(test->store, &stats);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		items += stats.classes[i].items;
	return items;
}

static void check_empty(struct test_store *test)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	CHECK_EQ(stats.keys, 0);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++) {
		CHECK_EQ(stats.classes[i].items, 0);
		CHECK_EQ(stats.classes[i].used, 0);
		CHECK_EQ(stats.classes[i].wasted, 0);
	}
	test_store_check(test);
}

static enum store_status put_long(struct test_store *test, const char *key, int byte, size_t length)
{
	struct store_put put = {.key = key, .key_length = strlen(key), .value_length = length};
	struct store_draft draft;
	enum store_status status = store_draft_begin(test->worker, &put, &draft);

	if (status != STORE_OK)
		return status;
	memset(draft.value, byte, length);
	return store_draft_commit(test->worker, &put, &draft, NULL);
}

static void check_bytes(const struct store_view *view, int byte, size_t length)
{
	CHECK_EQ(view->length, length);
	for (size_t i = 0; i < length; i++)
		CHECK_EQ(((const uint8_t *)view->value)[i], byte);
}

static void pin(struct test_store *test, const char *key, struct store_view *view)
{
	CHECK_EQ(store_pin(test->worker, key, strlen(key), view), STORE_OK);
}

static const size_t lengths[] = {0, 1, 100, 5000, 70000, 600000};

/* Writes over everything that is free, so that bytes which are still looked at would be lost. */
static void churn(struct test_store *test)
{
	for (int i = 0; i < 40; i++) {
		for (size_t j = 0; j < TEST_COUNT(lengths); j++) {
			char key[32];

			snprintf(key, sizeof(key), "churn %d of %zu", i % 7, j);
			CHECK_EQ(put_long(test, key, 0xdd, lengths[j]), STORE_OK);
		}
	}
}

enum ending { DELETED, OVERWRITTEN, FLUSHED, EXPIRED };

static void end_key(struct test_store *test, enum ending ending)
{
	switch (ending) {
	case DELETED:
		CHECK_EQ(store_delete(test->worker, "key", 3, 0, NULL), STORE_OK);
		break;
	case OVERWRITTEN:
		CHECK_EQ(put_text(test->worker, "key", "new", NULL), STORE_OK);
		break;
	case FLUSHED:
		store_flush(test->worker);
		break;
	case EXPIRED:
		CHECK_EQ(store_expire(test->worker, "key", 3, 10, NULL), STORE_OK);
		test_now_ms += 10;
		CHECK_EQ(store_tick(test->worker, 100000), 1);
		break;
	}
}

static void survive(enum ending ending, size_t length, bool zero_freed)
{
	struct test_store test;
	struct store_view first, second;
	uint64_t items;

	test_store_open(&test, 32 * MIB, STORE_REJECT);
	test.options.clock_ms = test_clock_ms;
	test.options.zero_freed = zero_freed;
	test_store_restart(&test);
	CHECK_EQ(put_long(&test, "key", 0x5a, length), STORE_OK);
	pin(&test, "key", &first);
	pin(&test, "key", &second);
	CHECK(first.value == second.value);
	end_key(&test, ending);
	items = items_of(&test);
	CHECK_EQ(items, ending == OVERWRITTEN ? 2 : 1);
	churn(&test);
	check_bytes(&first, 0x5a, length);
	store_unpin(test.worker, &first);
	CHECK(first.value == NULL);
	churn(&test);
	check_bytes(&second, 0x5a, length);
	items = items_of(&test);
	store_unpin(test.worker, &second);
	CHECK_EQ(items_of(&test), items - 1);
	test_store_check(&test);
	store_flush(test.worker);
	check_empty(&test);
	test_store_close(&test);
}

static void test_survive(void)
{
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		survive(DELETED, lengths[i], false);
		survive(OVERWRITTEN, lengths[i], i % 2);
		survive(FLUSHED, lengths[i], true);
		survive(EXPIRED, lengths[i], false);
	}
}

/* Pinning changes nothing about the key. */
static void test_pinned_is_alive(void)
{
	struct test_store test;
	struct store_view view;
	char value[16];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "key", "value", NULL), STORE_OK);
	pin(&test, "key", &view);
	CHECK_EQ(get_text(test.worker, "key", value, sizeof(value), NULL), STORE_OK);
	CHECK_EQ(store_expire(test.worker, "key", 3, 1000000, NULL), STORE_OK);
	CHECK_EQ(put_text(test.worker, "key", "newer", NULL), STORE_OK);
	CHECK_EQ(get_text(test.worker, "key", value, sizeof(value), NULL), STORE_OK);
	CHECK_STR(value, "newer");
	CHECK_MEM(view.value, "value", 5);
	store_unpin(test.worker, &view);
	CHECK_EQ(store_delete(test.worker, "key", 3, 0, NULL), STORE_OK);
	check_empty(&test);
	test_store_close(&test);
}

/* Unpinned while alive: the key stays, and its memory comes back with it. */
static void test_unpinned_first(void)
{
	struct test_store test;
	struct store_view view;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "key", "value", NULL), STORE_OK);
	for (int i = 0; i < 1000; i++) {
		pin(&test, "key", &view);
		store_unpin(test.worker, &view);
	}
	test_store_check(&test);
	CHECK_EQ(items_of(&test), 1);
	CHECK_EQ(store_delete(test.worker, "key", 3, 0, NULL), STORE_OK);
	check_empty(&test);
	test_store_close(&test);
}

static void test_pin_limit(void)
{
	struct store_view *views = calloc(MAX_PINS, sizeof(*views)), one_more;
	struct store_worker *other;
	struct test_store test;
	struct store_info info;

	CHECK(views);
	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_OK(store_worker_open(test.store, &other));
	CHECK_EQ(put_text(test.worker, "key", "value", NULL), STORE_OK);
	CHECK_EQ(store_expire(test.worker, "key", 3, UINT64_MAX, NULL), STORE_OK);
	for (int i = 0; i < MAX_PINS; i++)
		pin(&test, "key", &views[i]);
	CHECK_EQ(store_pin(test.worker, "key", 3, &one_more), STORE_TOO_MANY_PINS);
	CHECK_EQ(store_stat(test.worker, "key", 3, &info), STORE_OK);
	test_store_check(&test);
	store_unpin(other, &views[0]);
	pin(&test, "key", &views[0]);
	CHECK_EQ(store_pin(other, "key", 3, &one_more), STORE_TOO_MANY_PINS);
	CHECK_EQ(store_delete(test.worker, "key", 3, 0, NULL), STORE_OK);
	for (int i = 0; i < MAX_PINS; i++) {
		CHECK_EQ(items_of(&test), 1);
		CHECK_MEM(views[i].value, "value", 5);
		/* By any worker. */
		store_unpin(i % 2 ? other : test.worker, &views[i]);
	}
	check_empty(&test);
	store_worker_close(other);
	check_empty(&test);
	free(views);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Drafts
 */

static void test_draft(void)
{
	struct test_store test;
	struct store_put put = {.key = "key", .key_length = 3, .value_length = 1000};
	struct store_draft draft;
	struct store_info info;
	uint8_t value[1000];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	CHECK_EQ(draft.value_length, 1000);
	CHECK_EQ(store_stat(test.worker, "key", 3, &info), STORE_NOT_FOUND);
	CHECK_EQ(items_of(&test), 1);
	for (int i = 0; i < 1000; i += 100)
		memset((uint8_t *)draft.value + i, i / 100, 100);
	CHECK_EQ(store_draft_commit(test.worker, &put, &draft, &info), STORE_OK);
	CHECK_EQ(info.value_length, 1000);
	CHECK_EQ(store_get(test.worker, "key", 3, value, 1000, NULL), STORE_OK);
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(value[i], i / 100);
	test_store_check(&test);
	store_flush(test.worker);
	check_empty(&test);
	test_store_close(&test);
}

static void test_draft_abort(void)
{
	struct test_store test;
	struct store_draft drafts[TEST_COUNT(lengths)];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	for (int round = 0; round < 100; round++) {
		for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
			struct store_put put = {
				.key = "key", .key_length = 3, .value_length = lengths[i]};

			CHECK_EQ(store_draft_begin(test.worker, &put, &drafts[i]), STORE_OK);
		}
		CHECK_EQ(items_of(&test), TEST_COUNT(lengths));
		for (size_t i = 0; i < TEST_COUNT(lengths); i++)
			store_draft_abort(test.worker, &drafts[i]);
	}
	check_empty(&test);
	test_store_close(&test);
}

/* The condition counts at the commit, and a draft that fails leaves nothing behind. */
static void test_draft_conditions(void)
{
	struct test_store test;
	struct store_put put = {
		.key = "key", .key_length = 3, .value_length = 5, .condition = STORE_IF_ABSENT};
	struct store_draft draft, late;
	struct store_info first, info;
	char value[16];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	CHECK_EQ(store_draft_begin(test.worker, &put, &late), STORE_OK);
	memcpy(draft.value, "early", 5);
	memcpy(late.value, "later", 5);
	CHECK_EQ(store_draft_commit(test.worker, &put, &draft, &first), STORE_OK);
	CHECK_EQ(store_draft_commit(test.worker, &put, &late, &info), STORE_EXISTS);
	CHECK_EQ(info.version, first.version);
	CHECK_EQ(items_of(&test), 1);
	put.condition = STORE_IF_VERSION;
	put.version = first.version;
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	memcpy(draft.value, "third", 5);
	CHECK_EQ(put_text(test.worker, "key", "other", &info), STORE_OK);
	CHECK_EQ(store_draft_commit(test.worker, &put, &draft, &first), STORE_CONFLICT);
	CHECK_EQ(first.version, info.version);
	CHECK_EQ(get_text(test.worker, "key", value, sizeof(value), NULL), STORE_OK);
	CHECK_STR(value, "other");
	CHECK_EQ(items_of(&test), 1);
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	CHECK_EQ(store_delete(test.worker, "key", 3, 0, NULL), STORE_OK);
	CHECK_EQ(store_draft_commit(test.worker, &put, &draft, NULL), STORE_NOT_FOUND);
	check_empty(&test);
	test_store_close(&test);
}

/* One thread alone: nothing for the thread sanitizer, which takes its time. */
#define SLOW_IN_TSAN (TEST_HAS_TSAN ? TEST_SLOW : 0)

static const struct test tests[] = {
	{"views_survive", test_survive, SLOW_IN_TSAN},
	{"what_is_pinned_is_alive", test_pinned_is_alive},
	{"unpinned_before_the_end", test_unpinned_first},
	{"pin_limit", test_pin_limit},
	{"draft", test_draft},
	{"draft_aborted", test_draft_abort},
	{"draft_conditions", test_draft_conditions},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_views", tests, TEST_COUNT(tests));
}
