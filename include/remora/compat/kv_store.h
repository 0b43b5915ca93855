/*
 * RDMA KV Store: programs that were written for the kv_client_* calls of that library.
 *
 *	#include <remora/compat/kv_store.h>		in place of "kv_store.h"
 *
 *	kv_client_t *client = kv_client_create(CONN_MODE_CM);
 *
 *	kv_client_connect(client, "192.168.1.100", 12345);
 *	if (kv_client_get(client, "key", 3, buf, &len) == KV_ERR_NOT_FOUND)
 *		...
 *
 * All of <remora/kv.h> is here, and is described there. What is added are the statuses under the
 * names KV_ERR_..., and what differs are the batch calls: they have the arguments of that library,
 * and return how many of the operations succeeded.
 *
 * If the directory of this file is given to the compiler by -I, #include "kv_store.h" finds it.
 */
#ifndef REMORA_COMPAT_KV_STORE_H
#define REMORA_COMPAT_KV_STORE_H

#include <remora/kv.h>

/* The statuses of <remora/kv.h>. */
#define KV_ERR_NOT_FOUND	KV_NOT_FOUND
#define KV_ERR_EXISTS		KV_EXISTS
#define KV_ERR_CAS_FAILED	KV_CAS_FAILED
#define KV_ERR_KEY_TOO_LONG	KV_KEY_TOO_LONG
#define KV_ERR_VALUE_TOO_LONG	KV_VALUE_TOO_LONG
#define KV_ERR_NO_MEMORY	KV_NO_MEMORY
#define KV_ERR_INTERNAL		KV_INTERNAL
#define KV_ERR_BUFFER_TOO_SMALL KV_BUFFER_TOO_SMALL
#define KV_ERR_TIMEOUT		KV_TIMEOUT
#define KV_ERR_UNKNOWN		KV_UNKNOWN
#define KV_ERR_DISCONNECTED	KV_DISCONNECTED
#define KV_ERR_DENIED		KV_DENIED
#define KV_ERR_BUSY		KV_BUSY
#define KV_ERR_INVALID		KV_INVALID
#define KV_ERR_NOT_A_NUMBER	KV_NOT_A_NUMBER
#define KV_ERR_OUT_OF_RANGE	KV_OUT_OF_RANGE
#define KV_ERR_PROTOCOL		KV_PROTOCOL
#define KV_ERR_UNSUPPORTED	KV_UNSUPPORTED
#define KV_ERR_AGAIN		KV_AGAIN
#define KV_ERR_CANCELED		KV_CANCELED

#ifdef __cplusplus
extern "C" {
#endif

/* kv_client_batch_get() and kv_client_batch_put() of this header. Return how many values were got
 * or put; KV_ERR_INVALID when count is not positive, or another status when none was tried.
 * value_lens[i] is as kv_client_get() leaves it. */
int kv_compat_batch_get(kv_client_t *client, const char **keys, const size_t *key_lens,
			void **values, size_t *value_lens, int count);
int kv_compat_batch_put(kv_client_t *client, const char **keys, const size_t *key_lens,
			const void **values, const size_t *value_lens, int count);

#ifdef __cplusplus
}
#endif

#define kv_client_batch_get kv_compat_batch_get
#define kv_client_batch_put kv_compat_batch_put

#endif
