/*
 * Addresses: which devices a name means, and what to say to them. For all of src/rdma.
 *
 *	"shm:NAME"		that name, on shm; the port counts for nothing
 *	"DEVICE://HOST[:PORT]"	"tcp://10.0.0.1", "verbs:mlx5_0,socket://[fe80::1]:7471"
 *	"HOST[:PORT]", NULL	the device of $REMORA_RDMA_DEVICE; if that is not set, all that this
 *				machine has, the fastest first
 *
 * A port in the name goes before the one given beside it. Any thread.
 */
#ifndef RDMA_ADDRESS_H
#define RDMA_ADDRESS_H

#include <remora/fabric.h>
#include <stdbool.h>

#define ADDRESS_DEVICE_VARIABLE "REMORA_RDMA_DEVICE"
#define ADDRESS_MAX		8u

/* One way to go. */
struct address {
	char device[64]; /* for rmr_device_open */
	char address
		[256]; /* for rmr_listener_open or rmr_connect; on shm "rdma-PORT" unless named */
	char reason[192]; /* why there is no such way; "": there is */
};

struct address_list {
	unsigned count;
	struct address at[ADDRESS_MAX]; /* the best first */
	bool is_chosen; /* the name or the environment chose one device: it must work */
};

enum address_use { ADDRESS_CONNECT, ADDRESS_LISTEN };

/* Finds the ways. To connect, no host means this one, and shm is one of them only if the host is
 * this one. To listen, no host means every address. RMR_BAD_ADDRESS, RMR_INVALID (the port). */
RMR_MUST_CHECK enum rmr_status address_find(const char *name, int port, enum address_use use,
					    struct address_list *list);

/* Whether a device is, or stands upon, shm: "fault:shm" does. */
bool address_device_is_shm(const char *device);

/* What a program uses that named no device and no address: that of the environment, else the first
 * usable verbs adapter, else "tcp". */
void address_default_device(char device[64]);

#endif
