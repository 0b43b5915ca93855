/* Keys: who may come in, and what he may do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fixture.h"
#include "server/raw.h"
#include "store/collide.h"

#define KEY(text) text, sizeof(text) - 1

static void write_file(char *path, size_t size, const char *name, const char *text)
{
	FILE *file;

	snprintf(path, size, "%s/%s", test_tmpdir(), name);
	file = fopen(path, "w");
	CHECK(file);
	fputs(text, file);
	fclose(file);
}

static void test_keys(void)
{
	char write_key[200], read_key[200], wrong_key[200], short_key[200];
	kv_server_options_t server_options = {.key_file = write_key, .read_key_file = read_key};
	kv_client_options_t options = {0};
	struct server server;
	kv_client_t *client;
	char value[16];
	size_t room = sizeof(value);

	write_file(write_key, sizeof(write_key), "write", "the key to read and write\n");
	write_file(read_key, sizeof(read_key), "read", "the key to read, and no more\n");
	write_file(wrong_key, sizeof(wrong_key), "wrong", "the key to read and write!\n");
	write_file(short_key, sizeof(short_key), "short", "short\n");
	server_start(&server, &server_options);

	CHECK_EQ(client_try(&server, &options, &client), KV_DENIED);
	CHECK_CONTAINS(kv_client_error(client), "key");
	kv_client_destroy(client);
	options.key_file = wrong_key;
	CHECK_EQ(client_try(&server, &options, &client), KV_DENIED);
	kv_client_destroy(client);
	options.key_file = short_key;
	CHECK_EQ(client_try(&server, &options, &client), KV_DENIED);
	CHECK_CONTAINS(kv_client_error(client), "openssl rand");
	kv_client_destroy(client);

	options.key_file = write_key;
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 1, NULL), KV_OK);
	kv_client_destroy(client);

	options.key_file = read_key;
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	room = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("w")), KV_DENIED);
	CHECK_CONTAINS(kv_client_error(client), "read");
	CHECK_KV(client, kv_client_delete(client, KEY("k")), KV_DENIED);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 1, NULL), KV_DENIED);
	CHECK_KV(client, kv_client_flush(client), KV_DENIED);
	room = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	CHECK_MEM(value, "v", 1);
	kv_client_destroy(client);
	server_stop(&server);
}

/* Who has a key does not talk to a server that has none. */
static void test_server_without_key(void)
{
	char key[200];
	kv_client_options_t options = {.key_file = key};
	struct server server;
	kv_client_t *client;

	write_file(key, sizeof(key), "key", "a key of the client alone\n");
	server_start(&server, NULL);
	CHECK_EQ(client_try(&server, &options, &client), KV_DENIED);
	kv_client_destroy(client);
	server_stop(&server);
}

static void enter(struct raw *raw, const struct server *server)
{
	char address[300];

	if (setup_is_shm())
		snprintf(address, sizeof(address), "kv-%d", server->port);
	else
		snprintf(address, sizeof(address), "%s:%d", setup.host, server->port);
	raw_enter(raw, setup.device, address, NULL);
}

/* One forbidden operation on the store's memory, by a program that keeps to no rule of the client
 * library. Returns how it ended. */
static enum rmr_status trespass(const struct server *server, enum rmr_op op)
{
	static _Alignas(64) uint8_t bytes[64] = "trespass";
	struct rmr_work work = {.op = op, .local = bytes, .length = 64};
	struct raw raw;
	enum rmr_status status;

	if (op != RMR_OP_WRITE)
		work.length = 8;
	enter(&raw, server);
	CHECK_OK(rmr_remote_open(raw.conn, &raw.welcome.arena, &work.remote));
	CHECK_OK(rmr_region_open(raw.device, bytes, sizeof(bytes), 0, &work.region));
	if (strcmp(setup.device, "shm") == 0)
		/* Mapped as it is, it cannot be made writable either. */
		CHECK_EQ(mprotect((void *)rmr_remote_pointer(work.remote),
				  rmr_remote_length(work.remote), PROT_READ | PROT_WRITE),
			 -1);
	status = raw_transfer(&raw, &work);
	rmr_region_close(work.region);
	raw_close(&raw);
	return status;
}

static void test_arena_cannot_be_written(void)
{
	struct server server;
	kv_client_t *client;
	char value[16];
	size_t room = sizeof(value);

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("value")), KV_OK);
	CHECK(trespass(&server, RMR_OP_WRITE) != RMR_OK);
	CHECK(trespass(&server, RMR_OP_FETCH_ADD) != RMR_OK);
	CHECK(trespass(&server, RMR_OP_COMPARE_SWAP) != RMR_OK);
	/* Nobody else notices. */
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	CHECK_MEM(value, "value", 5);
	CHECK_KV(client, kv_client_ping(client, NULL), KV_OK);
	kv_client_destroy(client);
	server_stop(&server);
}

#define COLLIDING 40u

struct sight {
	unsigned seen[COLLIDING], others;
};

static void see_key(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	struct sight *sight = context;
	uint32_t number;

	CHECK_EQ(info->length, 1);
	if (key_length != KV_MAX_KEY) {
		sight->others++;
		return;
	}
	memcpy(&number, (const uint8_t *)key + sizeof(number), sizeof(number));
	CHECK(number < COLLIDING);
	sight->seen[number]++;
}

/* Somebody puts long keys that all have the same hash: a scan shows them, and the others. */
static void test_scan_of_colliding_keys(void)
{
	static const size_t counts[] = {1, 10, 1000};
	uint8_t key[KV_MAX_KEY];
	struct server server;
	kv_client_t *client;
	struct raw raw;
	uint64_t seed;

	server_start(&server, NULL);
	enter(&raw, &server);
	seed = raw_hash_seed(&raw);
	raw_close(&raw);
	client = client_open(&server, NULL);
	for (uint32_t i = 0; i < COLLIDING; i++) {
		collide_key(key, seed, 'x', i);
		CHECK_KV(client, kv_client_put(client, key, sizeof(key), "v", 1), KV_OK);
		CHECK_KV(client, kv_client_put(client, &i, sizeof(i), "v", 1), KV_OK);
	}
	for (size_t i = 0; i < TEST_COUNT(counts); i++) {
		struct sight sight = {0};
		uint64_t cursor = 0;
		unsigned calls = 0;

		do {
			CHECK_KV(client,
				 kv_client_scan(client, &cursor, counts[i], see_key, &sight),
				 KV_OK);
			CHECK(++calls < 10 * COLLIDING);
		} while (cursor);
		for (unsigned j = 0; j < COLLIDING; j++)
			CHECK(sight.seen[j] >= 1);
		CHECK(sight.others >= COLLIDING);
	}
	kv_client_destroy(client);
	server_stop(&server);
}

const struct test trust_tests[] = {
	{"arena_cannot_be_written", test_arena_cannot_be_written},
	{"keys", test_keys},
	{"server_without_key", test_server_without_key},
	{"scan_of_colliding_keys", test_scan_of_colliding_keys},
	{0},
};
