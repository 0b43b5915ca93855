/*
 * What the two ends say over their Unix socket: a few packets, whole or not at all
 * (SOCK_SEQPACKET).
 *
 *	caller				listener
 *	HELLO + 2 descriptors  ---->
 *			       <----	ACCEPT + 2 descriptors, or REJECT with a reason
 *	GRANT + 1 descriptor   <--->	an arena that the other may map from now on
 *	REVOKE		       <--->	... and that it should unmap: it was closed
 *	WAKE		       <--->	you sleep, and something is there for you
 *	BYE		       <--->	the connection ends, and why
 *
 * The descriptors of HELLO and ACCEPT are the sender's segment and its region table. All fields are
 * in the host's byte order: both ends are on one host. Packets come from anyone who may open the
 * socket, so packet_check looks at every field before anything is used. It knows no sockets.
 */
#ifndef FABRIC_SHM_PACKET_H
#define FABRIC_SHM_PACKET_H

#include <assert.h>

#include <remora/fabric.h>

#define PACKET_MAGIC   0x686d6552u /* "Remh" */
#define PACKET_VERSION 1

enum packet_type {
	PACKET_HELLO = 1,
	PACKET_ACCEPT,
	PACKET_REJECT,
	PACKET_GRANT,
	PACKET_REVOKE,
	PACKET_WAKE,
	PACKET_BYE,
};

struct shm_packet {
	uint32_t magic;
	uint16_t version;
	uint8_t type;
	uint8_t private_length;	 /* HELLO, ACCEPT */
	uint32_t ring_cells;	 /* HELLO, ACCEPT: must be ours */
	uint32_t recv_size;	 /* HELLO, ACCEPT: longest message the sender takes */
	uint32_t max_regions;	 /* HELLO, ACCEPT: entries of the region table */
	int32_t status;		 /* BYE: enum rmr_status */
	uint64_t arena_id;	 /* GRANT, REVOKE */
	uint64_t arena_size;	 /* GRANT */
	uint32_t arena_writable; /* GRANT: 0 or 1 */
	uint32_t reserved;
	union {
		uint8_t private_data[RMR_PRIVATE_MAX]; /* HELLO, ACCEPT */
		char reason[136];		       /* REJECT: zero-terminated */
	};
	uint64_t secret; /* HELLO, ACCEPT: binds the sender's descriptors to this connection */
};
static_assert(sizeof(struct shm_packet) == 192, "no hidden padding");

#define PACKET_FDS 2 /* at most, with one packet */

/* Of a region table, which is mapped before anything is known of its sender: 1 MiB at most. */
#define PACKET_MAX_REGIONS (1u << 14)

/* How many descriptors belong to a packet of this type. */
unsigned packet_fds(enum packet_type type);

/* Is this a sound packet? NULL if so, else what is wrong with it. */
const char *packet_check(const void *bytes, size_t length, unsigned fds);

/* Sends a packet with its descriptors; fills magic and version. Never blocks, never raises SIGPIPE.
 * RMR_AGAIN: the peer has not read for long. RMR_DISCONNECTED: it is gone. */
enum rmr_status packet_send(int socket, struct shm_packet *packet, const int *fds);

/* Who sent a packet, as the kernel says. */
struct packet_sender {
	int pid;
	unsigned uid;
};

/* Receives and checks one packet without waiting. fds (PACKET_FDS of them, -1 where none) are the
 * caller's to close. RMR_AGAIN: there is none. RMR_DISCONNECTED: the peer is gone. RMR_PROTOCOL:
 * nonsense came. RMR_LIMIT: this process has no descriptor free for what came. sender may be
 * NULL. */
enum rmr_status packet_receive(int socket, struct shm_packet *packet, int fds[PACKET_FDS],
			       struct packet_sender *sender);

void packet_close_fds(int fds[PACKET_FDS]);

#endif
