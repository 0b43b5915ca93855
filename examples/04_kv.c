/*
 * Keys and values on a server.
 *	04_kv [server]		a host, or shm:NAME, tcp://HOST:PORT, verbs://HOST:PORT
 * Start one first: kv-server. Every value has a version; cas replaces a value only if nobody else
 * has done so since it was read.
 */
#include <err.h>
#include <inttypes.h>
#include <remora/kv.h>
#include <stdio.h>
#include <string.h>

static kv_client_t *client;

/* Every call goes through here, with the answers that are fine beside KV_OK. */
static int check(int status, int fine)
{
	if (status != KV_OK && status != fine)
		errx(1, "%s", kv_client_error(client));
	return status;
}

int main(int argc, char **argv)
{
	const kv_put_options_t a_minute = {.ttl_ms = 60000};
	const char *key = "example:fish";
	size_t key_length = strlen(key), length;
	uint64_t version, ttl_ms;
	char value[64];
	kv_info_t info;

	client = kv_client_create(CONN_MODE_AUTO); /* shm on this host, else RDMA, else TCP */
	if (!client)
		errx(1, "no memory");
	check(kv_client_connect(client, argc > 1 ? argv[1] : NULL, 0), KV_OK);

	check(kv_client_put(client, key, key_length, "remora", 6), KV_OK);
	length = sizeof(value); /* the room on the way in, the value's length on the way out */
	check(kv_client_get_with(client, key, key_length, value, &length, &info), KV_OK);
	printf("get: %.*s\n", (int)length, value);

	/* Nobody came between: the version is still the one that was read. */
	check(kv_client_cas(client, key, key_length, info.version, "shark", 5, &version), KV_OK);
	printf("cas: %s\n", version > info.version ? "a newer version" : "impossible");
	/* Now that one is old. The current version is told, so that one could try again. */
	if (check(kv_client_cas(client, key, key_length, info.version, "whale", 5, &info.version),
		  KV_CAS_FAILED) == KV_CAS_FAILED)
		printf("cas again: %s\n", info.version == version ? "refused" : "impossible");

	/* A value that goes away by itself. */
	check(kv_client_put_with(client, key, key_length, "mayfly", 6, &a_minute, NULL), KV_OK);
	check(kv_client_ttl(client, key, key_length, &ttl_ms), KV_OK);
	printf("ttl: %s\n", ttl_ms > 0 && ttl_ms <= 60000 ? "within a minute" : "impossible");

	check(kv_client_delete(client, key, key_length), KV_OK);
	length = sizeof(value);
	if (check(kv_client_get(client, key, key_length, value, &length), KV_NOT_FOUND))
		printf("get: %s\n", kv_strerror(KV_NOT_FOUND));
	kv_client_destroy(client);
	return 0;
}
