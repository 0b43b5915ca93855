/*
 * run_client(): the five calls, one after another, each with what it does said aloud. For a first
 * look at a server, and to be read: a program of one's own would do no more.
 *
 * The keys carry the number of this process, so that it meddles with nobody's; and they are deleted
 * in the end, for which the five calls have no name, but a handle is a client.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "client/internal.h"

#define LONG_VALUE (8u << 20)

static int complain(void *handle, const char *what, const char *key)
{
	printf("%s(%s) failed: %s\n", what, key, kv_client_error(handle));
	return 1;
}

/* Sets the key and gets it again. */
static int try_value(void *handle, const char *key, const char *value)
{
	size_t length = strlen(value);
	char *found;
	int same;

	if (kv_set(handle, key, value) != 0)
		return complain(handle, "kv_set", key);
	printf("kv_set(%s): %zu bytes, %s\n", key, length,
	       kv_path_name(kv_client_last_path(handle)));
	if (kv_get(handle, key, &found) != 0)
		return complain(handle, "kv_get", key);
	same = strcmp(found, value) == 0;
	printf("kv_get(%s): %zu bytes, %s, %s\n", key, strlen(found),
	       kv_path_name(kv_client_last_path(handle)),
	       same ? "the same" : "but not what was set");
	kv_release(found);
	return !same;
}

static int try_missing(void *handle, const char *key)
{
	char *found;

	if (kv_get(handle, key, &found) == 0) {
		printf("kv_get(%s): found, although nobody set it\n", key);
		kv_release(found);
		return 1;
	}
	if (((struct kv_client *)handle)->last_status != KV_NOT_FOUND)
		return complain(handle, "kv_get", key);
	printf("kv_get(%s): not there, as it should be\n", key);
	return 0;
}

static int try_all(void *handle)
{
	char *long_value = malloc(LONG_VALUE + 1);
	char key[64], long_key[64];
	int result = 1;

	if (!long_value) {
		printf("no memory for a value of %u bytes\n", LONG_VALUE);
		return 1;
	}
	for (unsigned i = 0; i < LONG_VALUE; i++)
		long_value[i] = (char)('a' + i % 26);
	long_value[LONG_VALUE] = 0;
	snprintf(key, sizeof(key), "run_client-%d", (int)getpid());
	snprintf(long_key, sizeof(long_key), "run_client-%d-long", (int)getpid());

	/* The second value takes the place of the first. */
	if (try_missing(handle, key) == 0 && try_value(handle, key, "a first value") == 0 &&
	    try_value(handle, key, "and a second") == 0 &&
	    try_value(handle, long_key, long_value) == 0 &&
	    try_value(handle, long_key, "a short one in place of a long one") == 0)
		result = 0;
	kv_client_delete(handle, key, strlen(key));
	kv_client_delete(handle, long_key, strlen(long_key));
	free(long_value);
	return result;
}

int run_client(char *servername)
{
	const char *name = servername ? servername : "this machine";
	void *handle;
	int result;

	error_clear();
	if (kv_open(servername, &handle) != 0) {
		printf("kv_open(%s) failed: %s\n", name,
		       *error_chain() ? error_chain() : "no server is there");
		return 1;
	}
	printf("kv_open(%s): by %s\n", name, kv_client_transport(handle));
	result = try_all(handle);
	if (kv_close(handle) != 0)
		result = 1;
	printf("kv_close: %s\n", result ? "not all went well" : "all went well");
	return result;
}
