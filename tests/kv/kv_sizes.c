/* Values of every length, by every path: each is forced, and the client has to say that it took
 * it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fixture.h"

#define KEY(text) text, sizeof(text) - 1
#define MIB	  ((size_t)1 << 20)

static void put_checked(kv_client_t *client, const char *key, const void *value, size_t length,
			kv_path_t path)
{
	CHECK_KV(client, kv_client_put(client, key, strlen(key), value, length), KV_OK);
	if (kv_client_last_path(client) != path)
		TEST_FAIL("put of %zu bytes by %s, not by %s", length,
			  kv_path_name(kv_client_last_path(client)), kv_path_name(path));
}

/* Where memory is mapped the server is asked if a copy takes too long, as it may on a busy machine:
 * then another try has to do. */
#define MAPPED_TRIES 20

static void get_checked(kv_client_t *client, const char *key, void *value, size_t room,
			size_t length, uint64_t number, kv_path_t path)
{
	size_t found;
	int tries = 0;

	do {
		found = room;
		if (length)
			memset(value, 0xee, length);
		CHECK_KV(client, kv_client_get(client, key, strlen(key), value, &found), KV_OK);
	} while (path == KV_PATH_MAPPED && kv_client_last_path(client) != path &&
		 ++tries < MAPPED_TRIES);
	CHECK_EQ(found, length);
	if (!value_is(value, length, number))
		TEST_FAIL("a wrong value of %zu bytes by %s", length,
			  kv_path_name(kv_client_last_path(client)));
	if (kv_client_last_path(client) != path)
		TEST_FAIL("get of %zu bytes by %s, not by %s", length,
			  kv_path_name(kv_client_last_path(client)), kv_path_name(path));
}

enum { EAGER = 8192, LANDING = 1 << 20, REPLY = 8192 };

/* Around every threshold, and far beyond. */
/* clang-format off */
static const size_t sizes[] = {
	0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097,
	EAGER - 3, EAGER - 2, EAGER, 9000, 65536,
	LANDING - 52, LANDING - 51, LANDING - 50, LANDING - 49, LANDING,
	3 * MIB, 4 * MIB, 5 * MIB + 3, 64 * MIB,
};
/* clang-format on */

static void test_all_sizes(void)
{
	kv_server_options_t server_options = {
		.memory = 256 * MIB, .eager_limit = EAGER, .landing_size = LANDING};
	kv_client_options_t ask = {
		.get_mode = KV_GET_ASK, .timeout_ms = 60000, .landing_limit = LANDING};
	kv_client_options_t own = {.timeout_ms = 60000};
	struct server server;
	kv_client_t *asking, *reading;
	char *value = malloc(64 * MIB), *got = malloc(64 * MIB);

	server_start(&server, &server_options);
	asking = client_open(&server, &ask);
	reading = client_open(&server, &own);
	for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
		size_t size = sizes[i];
		char key[4] = {'k', (char)('a' + i), 'y', 0};
		kv_path_t put_path = size + 3 <= EAGER		? KV_PATH_EAGER
				     : size + 3 + 48 <= LANDING ? KV_PATH_LANDING
								: KV_PATH_RENDEZVOUS;
		kv_path_t ask_path = size <= REPLY     ? KV_PATH_INLINE
				     : size <= 4 * MIB ? KV_PATH_PUSH
						       : KV_PATH_RENDEZVOUS;

		value_fill(value, size, i);
		/* By whichever way the other client thinks best, then by the one that is forced. */
		CHECK_KV(reading, kv_client_put(reading, key, 3, value, size), KV_OK);
		get_checked(asking, key, got, 64 * MIB, size, i, ask_path);
		value_fill(value, size, i + 100);
		put_checked(asking, key, value, size, put_path);
		get_checked(asking, key, got, 64 * MIB, size, i + 100, ask_path);
		get_checked(asking, key, got, size, size, i + 100, ask_path);
		/* The first time the place is not true any more, the second time it is known. */
		get_checked(reading, key, got, 64 * MIB, size, i + 100,
			    setup_is_shm() ? KV_PATH_MAPPED : ask_path);
		if (size + 64 <= 4 * MIB)
			get_checked(reading, key, got, 64 * MIB, size, i + 100,
				    setup_is_shm() ? KV_PATH_MAPPED : KV_PATH_LOCATION);
		CHECK_KV(asking, kv_client_delete(asking, key, 3), KV_OK);
		CHECK_KV(reading, kv_client_exists(reading, key, 3), KV_NOT_FOUND);
	}
	free(value);
	free(got);
	kv_client_destroy(asking);
	kv_client_destroy(reading);
	server_stop(&server);
}

/* The server's limit of what it puts into a reply. */
static void test_inline_limit(void)
{
	kv_server_options_t server_options = {.inline_limit = 1000};
	kv_client_options_t ask = {.get_mode = KV_GET_ASK};
	static char value[8192], got[65536];
	struct server server;
	kv_client_t *client;

	server_start(&server, &server_options);
	client = client_open(&server, &ask);
	for (size_t size = 999; size <= 1001; size++) {
		value_fill(value, size, size);
		put_checked(client, "key", value, size, KV_PATH_EAGER);
		get_checked(client, "key", got, sizeof(got), size, size,
			    size <= 1000 ? KV_PATH_INLINE : KV_PATH_PUSH);
		/* With room for no more than a reply it is asked for twice. */
		get_checked(client, "key", got, 2000, size, size,
			    size <= 1000 ? KV_PATH_INLINE : KV_PATH_PUSH);
	}
	kv_client_destroy(client);
	server_stop(&server);
}

/* 1 GiB, once, where it does not take minutes. */
static void test_a_gibibyte(void)
{
	size_t size = 1024 * MIB;
	kv_server_options_t server_options = {.memory = size + 64 * MIB};
	kv_client_options_t options = {.timeout_ms = 60000};
	struct server server;
	kv_client_t *client;
	char *value;
	kv_view_t view;

	if (strcmp(setup.device, "shm") != 0 || TEST_HAS_SANITIZER)
		TEST_SKIP("by shm alone");
	value = malloc(size);
	server_start(&server, &server_options);
	client = client_open(&server, &options);
	value_fill(value, size, 7);
	put_checked(client, "large", value, size, KV_PATH_RENDEZVOUS);
	get_checked(client, "large", value, size, size, 7, KV_PATH_MAPPED);
	CHECK_KV(client, kv_client_view(client, KEY("large"), &view), KV_OK);
	CHECK(value_is(view.value, view.length, 7));
	kv_client_release(client, &view);
	free(value);
	kv_client_destroy(client);
	server_stop(&server);
}

/* A long key that fits no message, and hardly any value: by whichever way, it is put. */
static void test_long_keys_and_nothing(void)
{
	kv_client_options_t small = {.eager_limit = 1000, .landing_limit = 80};
	static char key[2000], value[16];
	struct server server;
	kv_client_t *client;

	server_start(&server, NULL);
	client = client_open(&server, &small);
	memset(key, 'k', sizeof(key));
	/* More of them than there may be under way: none is left lying about. */
	for (size_t length = 0; length < 10; length++) {
		size_t found = sizeof(value);

		CHECK_KV(client, kv_client_put(client, key, sizeof(key), "123456789", length),
			 KV_OK);
		CHECK_KV(client, kv_client_get(client, key, sizeof(key), value, &found), KV_OK);
		CHECK_EQ(found, length);
		CHECK_MEM(value, "123456789", length);
	}
	CHECK_EQ(client_figure(client, "drafts"), 0);
	kv_client_destroy(client);
	server_stop(&server);
}

/* The index, read by ourselves. */
static void test_index_reads(void)
{
	/* With delays each READ takes its time. */
	const unsigned keys = setup.fault_plan ? 700 : 5000;
	kv_client_options_t options = {.get_mode = KV_GET_INDEX, .cache_entries = UINT32_MAX};
	struct server server;
	kv_client_t *writer, *reader;
	kv_client_totals_t totals;
	char key[16], value[300];

	server_start(&server, NULL);
	writer = client_open(&server, NULL);
	reader = client_open(&server, &options);
	for (unsigned round = 0; round < 2; round++) {
		/* The index grows between the rounds, behind the reader's back. */
		for (unsigned i = 0; i < keys * (round + 1); i++) {
			int length = snprintf(key, sizeof(key), "k%u", i);

			value_fill(value, i % 300, i + round);
			CHECK_KV(writer, kv_client_put(writer, key, (size_t)length, value, i % 300),
				 KV_OK);
		}
		for (unsigned i = 0; i < keys * (round + 1); i++) {
			int length = snprintf(key, sizeof(key), "k%u", i);
			size_t room = sizeof(value);

			CHECK_KV(reader, kv_client_get(reader, key, (size_t)length, value, &room),
				 KV_OK);
			CHECK_EQ(room, i % 300);
			CHECK(value_is(value, room, i + round));
		}
	}
	kv_client_get_totals(reader, &totals);
	/* Nearly all of them without asking. */
	if (totals.operations[setup_is_shm() ? KV_PATH_MAPPED : KV_PATH_INDEX] < 3 * keys * 9 / 10)
		TEST_FAIL("%d by index, %d asked for, %d torn",
			  (int)totals.operations[KV_PATH_INDEX],
			  (int)totals.operations[KV_PATH_INLINE], (int)totals.torn_reads);
	kv_client_destroy(writer);
	kv_client_destroy(reader);
	server_stop(&server);
}

/* After a flush the index shrinks, and the reader's picture of it leads nowhere: it is made again,
 * and the reader does without asking again. */
static void test_index_reads_after_flush(void)
{
	const unsigned keys = setup.fault_plan ? 5000 : 12000, few = 300;
	kv_client_options_t options = {.get_mode = KV_GET_INDEX, .cache_entries = UINT32_MAX};
	kv_client_totals_t before, after;
	struct server server;
	kv_client_t *writer, *reader;
	char key[16], value[8];

	if (setup_is_shm())
		TEST_SKIP("the index is mapped here");
	server_start(&server, NULL);
	writer = client_open(&server, NULL);
	reader = client_open(&server, &options);
	kv_client_get_totals(reader, &before);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < (round ? few : keys); i++) {
			int length = snprintf(key, sizeof(key), "k%u", i);

			CHECK_KV(writer, kv_client_put(writer, key, (size_t)length, "value", 5),
				 KV_OK);
		}
		kv_client_get_totals(reader, &before);
		for (unsigned i = 0; i < few; i++) {
			int length = snprintf(key, sizeof(key), "k%u", i);
			size_t room = sizeof(value);

			CHECK_KV(reader, kv_client_get(reader, key, (size_t)length, value, &room),
				 KV_OK);
			CHECK_EQ(room, 5);
		}
		kv_client_get_totals(reader, &after);
		CHECK(after.operations[KV_PATH_INDEX] - before.operations[KV_PATH_INDEX] >=
		      few * 9 / 10);
		if (round == 1)
			break;
		CHECK(client_figure(writer, "buckets") > 1024);
		CHECK_KV(writer, kv_client_flush(writer), KV_OK);
		while (client_figure(writer, "buckets") > 1024)
			test_sleep_ms(5);
	}
	kv_client_destroy(writer);
	kv_client_destroy(reader);
	server_stop(&server);
}

/* Remembered places that are not true any more are noticed, and a key that changes all the time is
 * asked for. */
static void test_stale_places(void)
{
	struct server server;
	kv_client_t *writer, *reader;
	kv_client_totals_t totals;
	char value[64];
	size_t room;

	if (setup_is_shm())
		TEST_SKIP("no places are remembered here");
	server_start(&server, NULL);
	writer = client_open(&server, NULL);
	reader = client_open(&server, NULL);
	for (uint64_t i = 0; i < 200; i++) {
		value_fill(value, sizeof(value), i);
		CHECK_KV(writer, kv_client_put(writer, KEY("hot"), value, sizeof(value)), KV_OK);
		room = sizeof(value);
		CHECK_KV(reader, kv_client_get(reader, KEY("hot"), value, &room), KV_OK);
		CHECK(value_is(value, room, i));
	}
	kv_client_get_totals(reader, &totals);
	CHECK(totals.stale_locations > 0);
	CHECK(totals.stale_locations < 60);
	/* Quiet again: it is read again. */
	for (int i = 0; i < 50; i++) {
		room = sizeof(value);
		CHECK_KV(reader, kv_client_get(reader, KEY("hot"), value, &room), KV_OK);
	}
	CHECK_EQ(kv_client_last_path(reader), KV_PATH_LOCATION);
	CHECK_EQ(kv_client_last_round_trips(reader), 1);
	kv_client_destroy(writer);
	kv_client_destroy(reader);
	server_stop(&server);
}

/* Long values that change while they are read, without a pause, so that the memory of one is
 * another's soon. Each begins with its number, of which all the rest is made. */
enum { CHANGING_KEYS = 8, CHANGING_S = 4 };

struct changing {
	const struct server *server;
	atomic_bool stop;
};

/* Is this an adapter, or says it is? */
static bool setup_is_offloaded(void)
{
	return strncmp(setup.device, "verbs", 5) == 0 ||
	       (setup.fault_plan && strstr(setup.fault_plan, "offload"));
}

static size_t changing_length(uint64_t number)
{
	return number % 2 ? MIB : 3 * MIB / 4;
}

static const char *changing_key(uint64_t number)
{
	static const char *const keys[CHANGING_KEYS] = {"a", "b", "c", "d", "e", "f", "g", "h"};

	return keys[number % CHANGING_KEYS];
}

static void put_changing(kv_client_t *client, char *value, uint64_t number)
{
	const char *key = changing_key(number);

	memcpy(value, &number, sizeof(number));
	value_fill(value + sizeof(number), changing_length(number) - sizeof(number), number);
	CHECK_KV(client, kv_client_put(client, key, strlen(key), value, changing_length(number)),
		 KV_OK);
}

static void *change_values(void *argument)
{
	struct changing *changing = argument;
	kv_client_t *client = client_open(changing->server, NULL);
	char *value = malloc(MIB);

	for (uint64_t number = CHANGING_KEYS; !atomic_load(&changing->stop); number++)
		put_changing(client, value, number);
	free(value);
	kv_client_destroy(client);
	return NULL;
}

static void get_changing(kv_client_t *client, const char *key, char *value)
{
	size_t length = MIB;
	uint64_t number;

	CHECK_KV(client, kv_client_get(client, key, strlen(key), value, &length), KV_OK);
	memcpy(&number, value, sizeof(number));
	if (length != changing_length(number) || strcmp(changing_key(number), key) != 0 ||
	    !value_is(value + sizeof(number), length - sizeof(number), number))
		TEST_FAIL("a wrong value of %zu bytes, number %llu, by %s", length,
			  (unsigned long long)number, kv_path_name(kv_client_last_path(client)));
}

static void test_changing_long_values(void)
{
	kv_server_options_t options = {.memory = 16 * MIB};
	struct server server;
	struct changing changing = {.server = &server};
	kv_client_t *client;
	pthread_t writer;
	char *value = malloc(MIB);
	uint64_t end_ns;
	unsigned by_place = 0;

	server_start(&server, &options);
	client = client_open(&server, NULL);
	for (uint64_t i = 0; i < CHANGING_KEYS; i++)
		put_changing(client, value, i);
	CHECK_EQ(pthread_create(&writer, NULL, change_values, &changing), 0);
	end_ns = clock_deadline_ns(CHANGING_S * 1000);
	for (uint64_t i = 0; !clock_passed(end_ns); i++) {
		/* Twice: the first one may have to ask. */
		get_changing(client, changing_key(i / 2), value);
		by_place += kv_client_last_path(client) == KV_PATH_LOCATION;
	}
	atomic_store(&changing.stop, true);
	CHECK_EQ(pthread_join(writer, NULL), 0);
	/* Nothing changes any more: once to learn the place, or to lose a doubt. */
	for (int i = 0; i < 20; i++)
		get_changing(client, changing_key(0), value);
	if (!setup_is_shm()) {
		CHECK(by_place > 0);
		CHECK_EQ(kv_client_last_path(client), KV_PATH_LOCATION);
		/* The item, and its header again; elsewhere it is hashed. */
		CHECK_EQ(kv_client_last_round_trips(client), setup_is_offloaded() ? 2 : 1);
	}
	free(value);
	kv_client_destroy(client);
	server_stop(&server);
}

static void test_full_store(void)
{
	kv_server_options_t options = {.memory = 8 * MIB, .reject = true};
	struct server server;
	kv_client_t *client;
	static char value[65536];
	unsigned stored = 0;
	char key[16];
	int status;

	server_start(&server, &options);
	client = client_open(&server, NULL);
	for (;; stored++) {
		int length = snprintf(key, sizeof(key), "k%u", stored);

		value_fill(value, sizeof(value), stored);
		status = kv_client_put(client, key, (size_t)length, value, sizeof(value));
		if (status != KV_OK)
			break;
	}
	CHECK_EQ(status, KV_NO_MEMORY);
	CHECK(stored > 80);
	/* Nothing was lost by that. */
	for (unsigned i = 0; i < stored; i++) {
		int length = snprintf(key, sizeof(key), "k%u", i);
		size_t room = sizeof(value);

		CHECK_KV(client, kv_client_get(client, key, (size_t)length, value, &room), KV_OK);
		CHECK(value_is(value, room, i));
	}
	CHECK_KV(client, kv_client_put(client, KEY("k"), value, 9 * MIB), KV_VALUE_TOO_LONG);
	CHECK_KV(client, kv_client_delete(client, KEY("k0")), KV_OK);
	CHECK_KV(client, kv_client_put(client, KEY("again"), value, sizeof(value)), KV_OK);
	kv_client_destroy(client);
	server_stop(&server);
}

/* How far a long value has come, and where the caller has had enough of it. */
struct watch {
	uint64_t calls, last, total, enough;
};

static bool watch_progress(void *context, uint64_t done, uint64_t total)
{
	struct watch *watch = context;

	if (watch->calls++)
		CHECK(done > watch->last);
	CHECK(done < total);
	watch->last = done;
	watch->total = total;
	return done < watch->enough;
}

static void test_progress(void)
{
	const size_t size = 16 * MIB;
	kv_server_options_t server_options = {.memory = 128 * MIB};
	kv_client_options_t ask = {.get_mode = KV_GET_ASK, .timeout_ms = 60000};
	char *value = malloc(size), *got = malloc(size);
	struct watch watch = {.enough = UINT64_MAX};
	struct server server;
	kv_client_t *client;
	size_t length = size;

	server_start(&server, &server_options);
	client = client_open(&server, &ask);
	kv_client_set_progress(client, watch_progress, &watch);
	value_fill(value, size, 1);
	CHECK_KV(client, kv_client_put(client, KEY("k"), value, size), KV_OK);
	CHECK(watch.calls > 4);
	CHECK_EQ(watch.total, size);

	/* Canceled half-way: the old one stays, and nothing of the new one lies about. */
	watch = (struct watch){.enough = size / 2};
	value_fill(value, size, 2);
	CHECK_KV(client, kv_client_put(client, KEY("k"), value, size), KV_CANCELED);
	CHECK(watch.last >= size / 2);
	kv_client_set_progress(client, NULL, NULL);
	CHECK_KV(client, kv_client_get(client, KEY("k"), got, &length), KV_OK);
	CHECK(value_is(got, size, 1));
	CHECK_EQ(client_figure(client, "drafts"), 0);

	/* By shm a get of this size is one copy. */
	watch = (struct watch){.enough = size / 2};
	kv_client_set_progress(client, watch_progress, &watch);
	CHECK_KV(client, kv_client_get(client, KEY("k"), got, &length),
		 setup_is_shm() ? KV_OK : KV_CANCELED);
	kv_client_set_progress(client, NULL, NULL);
	length = size;
	CHECK_KV(client, kv_client_get(client, KEY("k"), got, &length), KV_OK);
	CHECK(value_is(got, size, 1));
	free(value);
	free(got);
	kv_client_destroy(client);
	server_stop(&server);
}

/* A value that does not fit beside its predecessor. */
static void test_no_room_for_both(void)
{
	const size_t size = 25 * MIB;
	kv_client_options_t patient = {.timeout_ms = 60000};
	kv_put_options_t replace = {.may_lose_old = true};
	char *value = malloc(size), *got = malloc(size);

	CHECK(value && got);
	for (int rejects = 0; rejects < 2; rejects++) {
		kv_server_options_t options = {.memory = 40 * MIB, .reject = rejects};
		struct server server;
		kv_client_t *client;
		size_t length = size;

		server_start(&server, &options);
		client = client_open(&server, &patient);
		value_fill(value, size, 1);
		CHECK_KV(client, kv_client_put(client, KEY("k"), value, size), KV_OK);
		value_fill(value, size, 2);
		CHECK_KV(client, kv_client_put(client, KEY("k"), value, size),
			 rejects ? KV_NO_MEMORY : KV_OK);
		if (rejects)
			CHECK_CONTAINS(kv_client_error(client), "may_lose_old");
		CHECK_KV(client, kv_client_get(client, KEY("k"), got, &length), KV_OK);
		CHECK(value_is(got, size, rejects ? 1 : 2));
		value_fill(value, size, 3);
		CHECK_KV(client, kv_client_put_with(client, KEY("k"), value, size, &replace, NULL),
			 KV_OK);
		CHECK_KV(client, kv_client_get(client, KEY("k"), got, &length), KV_OK);
		CHECK(value_is(got, size, 3));
		kv_client_destroy(client);
		server_stop(&server);
	}
	free(value);
	free(got);
}

const struct test size_tests[] = {
	{"all_sizes", test_all_sizes, 0, 120},
	{"inline_limit", test_inline_limit},
	{"progress", test_progress},
	{"no_room_for_both", test_no_room_for_both},
	{"a_gibibyte", test_a_gibibyte, TEST_SLOW, 120},
	{"index_reads", test_index_reads},
	{"index_reads_after_a_flush", test_index_reads_after_flush},
	{"stale_places", test_stale_places},
	{"changing_long_values", test_changing_long_values},
	{"full_store", test_full_store},
	{"long_keys_and_nothing", test_long_keys_and_nothing},
	{0},
};
