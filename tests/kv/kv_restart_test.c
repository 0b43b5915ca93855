/*
 * A server that ends and is started again without its memory: versions that were read before
 * are worth nothing afterwards.
 *
 * Two things protect the caller, and each is tested without the other. The new store's versions are
 * above the old one's, because both begin at the time of day: a fresh client's cas with an old
 * version fails. And a client that knows that its connection leads to another store does not let it
 * compare versions of the first: here the day is the same one for both servers, down to the
 * nanosecond, so that versions repeat.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"

#define KEY(text) text, strlen(text)

/* The time of day of this process and its children, if it is to stand still; 0: the real one. */
static time_t frozen_s;

/* Instead of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	if (clock == CLOCK_REALTIME && frozen_s) {
		*time = (struct timespec){.tv_sec = frozen_s};
		return 0;
	}
	return (int)syscall(SYS_clock_gettime, clock, time);
}

static void freeze(void)
{
	frozen_s = time(NULL);
}

/* A server that says goodbye: what was sent to it, and not answered, is sent to the next one. */
static void stop_and_restart(struct server *server)
{
	server_stop(server);
	server_restart(server);
}

static uint64_t put_version(kv_client_t *client, const char *key, const char *value)
{
	kv_info_t info = {0};

	CHECK_KV(client, kv_client_put_with(client, KEY(key), KEY(value), NULL, &info), KV_OK);
	return info.version;
}

static void check_text(kv_client_t *client, const char *key, const char *expected)
{
	char value[64];
	size_t length = sizeof(value);

	CHECK_KV(client, kv_client_get(client, KEY(key), value, &length), KV_OK);
	CHECK_EQ(length, strlen(expected));
	CHECK_MEM(value, expected, length);
}

/* Another client puts the key on the new server, and a third one comes with the old version. */
static void test_versions_do_not_repeat(void)
{
	struct server server;
	kv_client_t *client;
	uint64_t first, second, found = 0;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	first = put_version(client, "k", "old");
	kv_client_destroy(client);
	test_kill(server.pid);
	server_restart(&server);
	client = client_open(&server, NULL);
	second = put_version(client, "k", "new");
	CHECK(second > first);
	kv_client_destroy(client);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_cas(client, KEY("k"), first, KEY("wrong"), &found),
		 KV_CAS_FAILED);
	CHECK_EQ(found, second);
	CHECK_KV(client, kv_client_delete_version(client, KEY("k"), first, NULL), KV_CAS_FAILED);
	check_text(client, "k", "new");
	kv_client_destroy(client);
	server_stop(&server);
}

/* What was read of one server is not compared on the next, though the versions are the same. */
static void test_cas_on_another_server(void)
{
	struct server server;
	kv_client_t *client, *other;
	uint64_t first, second, found = 0;
	kv_info_t info = {0};

	freeze();
	server_start(&server, NULL);
	for (int way = 0; way < 2; way++) {
		client = client_open(&server, NULL);
		first = put_version(client, "k", "old");
		stop_and_restart(&server);
		other = client_open(&server, NULL);
		second = put_version(other, "k", "new");
		CHECK_EQ(second, first);
		if (way == 0) {
			CHECK_KV(client,
				 kv_client_cas(client, KEY("k"), first, KEY("wrong"), &found),
				 KV_CAS_FAILED);
			CHECK_EQ(found, second);
		} else {
			CHECK_KV(client, kv_client_delete_version(client, KEY("k"), first, &info),
				 KV_CAS_FAILED);
			CHECK_EQ(info.version, second);
		}
		check_text(other, "k", "new");
		/* What it reads now counts. */
		CHECK_KV(client, kv_client_cas(client, KEY("k"), second, KEY("right"), &found),
			 KV_OK);
		check_text(other, "k", "right");
		kv_client_destroy(other);
		kv_client_destroy(client);
		stop_and_restart(&server);
	}
	server_stop(&server);
}

/* By each of the ways that long values take. */
static void test_long_cas_on_another_server(void)
{
	static uint8_t value[3 << 20];
	const kv_client_options_t ways[] = {{0}, {.landing_limit = 1 << 20}, {.landing_limit = 1}};
	struct server server;

	freeze();
	server_start(&server, NULL);
	for (size_t way = 0; way < TEST_COUNT(ways); way++) {
		for (size_t length = 4000; length <= sizeof(value); length = length * 15) {
			kv_client_t *client = client_open(&server, &ways[way]), *other;
			kv_put_options_t options = {.condition = KV_IF_VERSION};
			kv_info_t info = {0};

			options.version = put_version(client, "k", "old");
			stop_and_restart(&server);
			other = client_open(&server, NULL);
			CHECK_EQ(put_version(other, "k", "new"), options.version);
			CHECK_KV(client,
				 kv_client_put_with(client, KEY("k"), value, length, &options,
						    &info),
				 KV_CAS_FAILED);
			CHECK_EQ(info.version, options.version);
			check_text(other, "k", "new");
			kv_client_destroy(other);
			kv_client_destroy(client);
			stop_and_restart(&server);
		}
	}
	server_stop(&server);
}

/* ------------------------------------------------------------------------------------------
 * Update
 */

struct change {
	struct server *server;
	unsigned calls;
	char text[64];
};

/* Appends a letter; between the first read and its write the server is another one, on which
 * somebody else has put the key, and it got the same version. */
static int append(void *context, const void *current, size_t length, const void **value,
		  size_t *new_length)
{
	struct change *change = context;

	if (change->calls++ == 0) {
		kv_client_t *other;

		stop_and_restart(change->server);
		other = client_open(change->server, NULL);
		put_version(other, "k", "new");
		kv_client_destroy(other);
	}
	snprintf(change->text, sizeof(change->text), "%.*s+", (int)length, (const char *)current);
	*value = change->text;
	*new_length = strlen(change->text);
	return KV_OK;
}

static void test_update_over_two_servers(void)
{
	struct server server;
	struct change change = {.server = &server};
	kv_client_t *client;
	kv_info_t info;

	freeze();
	server_start(&server, NULL);
	client = client_open(&server, NULL);
	put_version(client, "k", "old");
	CHECK_KV(client, kv_client_update(client, KEY("k"), append, &change, &info), KV_OK);
	CHECK_EQ(change.calls, 2);
	check_text(client, "k", "new+");
	kv_client_destroy(client);
	server_stop(&server);
}

static const struct test tests[] = {
	{"versions_do_not_repeat", test_versions_do_not_repeat},
	{"cas_on_another_server", test_cas_on_another_server},
	{"long_cas_on_another_server", test_long_cas_on_another_server},
	{"update_over_two_servers", test_update_over_two_servers},
};

int main(int argc, char **argv)
{
	setup.device = "shm";
	if (argc > 2 && strcmp(argv[1], "--provider") == 0) {
		setup.device = argv[2];
		argv[2] = argv[0];
		argv += 2;
		argc -= 2;
	}
	if (!setup_is_shm())
		setup.host = "127.0.0.1";
	return test_main(argc, argv, "kv_restart", tests, TEST_COUNT(tests));
}
