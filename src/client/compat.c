/*
 * What the headers in <remora/compat/> have beside <remora/kv.h>: calls with the arguments or the
 * results of other libraries. The headers give them the names that they have there; here they are
 * not included, for their names stand for the client's own calls.
 */
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"

int kv_compat_get(void *handle, const char *key, char **value);
int kv_compat_batch_get(kv_client_t *client, const char **keys, const size_t *key_lens,
			void **values, size_t *value_lens, int count);
int kv_compat_batch_put(kv_client_t *client, const char **keys, const size_t *key_lens,
			const void **values, const size_t *value_lens, int count);

int kv_compat_get(void *handle, const char *key, char **value)
{
	void *found = NULL;
	size_t length;
	int status;

	if (!value)
		return 1;
	*value = NULL;
	if (!handle || !key)
		return 1;
	status = kv_client_get_alloc(handle, key, strlen(key), &found, &length, NULL);
	if (status == KV_NOT_FOUND)
		found = calloc(1, 1); /* kv_release() frees it */
	else if (status != KV_OK)
		return 1;
	*value = found;
	return found == NULL;
}

static int count_succeeded(int result, int *statuses, int count)
{
	int succeeded = 0;

	for (int i = 0; i < count; i++)
		succeeded += statuses[i] == KV_OK;
	free(statuses);
	return result == KV_OK ? succeeded : result;
}

int kv_compat_batch_get(kv_client_t *client, const char **keys, const size_t *key_lens,
			void **values, size_t *value_lens, int count)
{
	int *statuses, result;

	if (count <= 0)
		return KV_INVALID;
	statuses = calloc((size_t)count, sizeof(*statuses));
	if (!statuses)
		return KV_NO_MEMORY;
	result = kv_client_batch_get(client, (size_t)count, (const void *const *)keys, key_lens,
				     values, value_lens, statuses);
	return count_succeeded(result, statuses, count);
}

int kv_compat_batch_put(kv_client_t *client, const char **keys, const size_t *key_lens,
			const void **values, const size_t *value_lens, int count)
{
	int *statuses, result;

	if (count <= 0)
		return KV_INVALID;
	statuses = calloc((size_t)count, sizeof(*statuses));
	if (!statuses)
		return KV_NO_MEMORY;
	result = kv_client_batch_put(client, (size_t)count, (const void *const *)keys, key_lens,
				     values, value_lens, statuses);
	return count_succeeded(result, statuses, count);
}
