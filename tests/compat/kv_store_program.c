/*
 * A client of the RDMA KV Store as its text shows one: "kv_store.h", statuses KV_ERR_..., batches.
 *
 *	kv_store_program MODE IP PORT [DEVICE]		MODE: cm, socket, auto
 */
#include "kv_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 3

static int failures;

static void check(int right, const char *what)
{
	if (!right) {
		printf("wrong: %s\n", what);
		failures++;
	}
}

static void use_one(kv_client_t *client)
{
	uint64_t version = 0, newer;
	char buf[64];
	size_t len = sizeof(buf);

	check(kv_client_put(client, "key", 3, "value", 5) == KV_OK, "put");
	check(kv_client_get(client, "key", 3, buf, &len) == KV_OK && len == 5 &&
		      memcmp(buf, "value", 5) == 0,
	      "get");
	check(kv_client_cas(client, "key", 3, UINT64_MAX, "new", 3, &version) == KV_ERR_CAS_FAILED,
	      "cas");
	check(kv_client_cas(client, "key", 3, version, "new", 3, &newer) == KV_OK &&
		      newer > version,
	      "cas of the current version");
	check(kv_client_delete(client, "key", 3) == KV_OK, "delete");
	len = sizeof(buf);
	check(kv_client_get(client, "key", 3, buf, &len) == KV_ERR_NOT_FOUND, "get after delete");
	check(kv_client_put(client, "", 0, "value", 5) == KV_ERR_KEY_TOO_LONG, "an empty key");
}

static void use_many(kv_client_t *client)
{
	const char *keys[COUNT] = {"one", "two", "three"};
	const size_t key_lens[COUNT] = {3, 3, 5};
	const void *values[COUNT] = {"1", "22", "333"};
	const size_t value_lens[COUNT] = {1, 2, 3};
	char room[COUNT][8];
	void *bufs[COUNT] = {room[0], room[1], room[2]};
	size_t lens[COUNT] = {8, 8, 8};

	check(kv_client_batch_put(client, keys, key_lens, values, value_lens, COUNT) == COUNT,
	      "batch_put");
	check(kv_client_delete(client, "two", 3) == KV_OK, "delete");
	check(kv_client_batch_get(client, keys, key_lens, bufs, lens, COUNT) == COUNT - 1,
	      "batch_get counts those that succeed");
	check(lens[2] == 3 && memcmp(room[2], "333", 3) == 0, "batch_get");
	check(kv_client_batch_get(client, keys, key_lens, bufs, lens, 0) == KV_ERR_INVALID,
	      "a batch of none");
}

static kv_client_t *connect_by(const char *mode, const char *ip, int port, const char *device)
{
	kv_client_t *client;
	int ret;

	if (strcmp(mode, "socket") == 0) {
		client = kv_client_create(CONN_MODE_SOCKET);
		ret = kv_client_connect_socket(client, ip, port, device);
	} else {
		client = kv_client_create(strcmp(mode, "cm") == 0 ? CONN_MODE_CM : CONN_MODE_AUTO);
		ret = kv_client_connect(client, ip, port);
	}
	if (ret != KV_OK) {
		printf("connect: %d: %s\n", ret, kv_client_error(client));
		kv_client_destroy(client);
		return NULL;
	}
	return client;
}

int main(int argc, char **argv)
{
	kv_client_t *client;

	if (argc < 4) {
		fprintf(stderr, "usage: kv_store_program cm|socket|auto IP PORT [DEVICE]\n");
		return 2;
	}
	client = connect_by(argv[1], argv[2], atoi(argv[3]), argc > 4 ? argv[4] : NULL);
	if (!client)
		return 1;
	printf("by %s\n", kv_client_transport(client));
	use_one(client);
	use_many(client);
	kv_client_disconnect(client);
	kv_client_destroy(client);
	printf("%s\n", failures ? "failed" : "all right");
	return failures != 0;
}
