/*
 * RDMA Key-Value Store: programs that were written for its five calls and its primitives.
 *
 *	#include <remora/compat/rdma_kv.h>		in place of "kv_store.h", "RDMA_api.h" ...
 *
 *	int main(int argc, char **argv)
 *	{
 *		return argc > 1 ? run_client(argv[1]) : run_server();
 *	}
 *
 * The five calls kv_open, kv_set, kv_get, kv_release and kv_close are those of <remora/kv.h>, but
 * for one thing: kv_get() of a key that is not there succeeds, and gives an empty string. The
 * primitives, from RDMA_connect() to send_fin(), are those of <remora/pingpong.h>. run_server() is
 * in libremora-server, everything else in libremora.
 */
#ifndef REMORA_COMPAT_RDMA_KV_H
#define REMORA_COMPAT_RDMA_KV_H

#include <remora/kv.h>
#include <remora/pingpong.h>
#include <remora/server.h>

#ifdef __cplusplus
extern "C" {
#endif

/* kv_get() of this header. 0: *value is the key's value, or "" if there is no such key; free it by
 * kv_release(). 1: on error, and *value is NULL. */
int kv_compat_get(void *handle, const char *key, char **value);

#ifdef __cplusplus
}
#endif

#define kv_get kv_compat_get

#endif
