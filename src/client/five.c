/*
 * The five-call store: strings, blocking, 0 on success and 1 on error. A handle is a client.
 */
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"

int kv_open(char *server, void **handle)
{
	kv_client_t *client;

	if (!handle)
		return 1;
	client = kv_client_create(CONN_MODE_AUTO);
	if (!client)
		return 1;
	if (kv_client_connect(client, server, 0) != KV_OK) {
		kv_client_destroy(client);
		return 1;
	}
	*handle = client;
	return 0;
}

int kv_set(void *handle, const char *key, const char *value)
{
	if (!handle || !key || !value)
		return 1;
	return kv_client_put(handle, key, strlen(key), value, strlen(value)) != KV_OK;
}

int kv_get(void *handle, const char *key, char **value)
{
	size_t length;
	void *found;

	if (!value)
		return 1;
	*value = NULL;
	if (!handle || !key ||
	    kv_client_get_alloc(handle, key, strlen(key), &found, &length, NULL) != KV_OK)
		return 1;
	*value = found;
	return 0;
}

void kv_release(char *value)
{
	free(value);
}

int kv_close(void *handle)
{
	if (!handle)
		return 1;
	kv_client_destroy(handle);
	return 0;
}
