/*
 * What two ends tell each other over a socket, when they meet by TCP instead of RDMA CM: their
 * greeting, and how their queue pairs are to be addressed. Little-endian.
 *
 *	 0                                          56         60         64
 *	+------------------------------------------+----------+----------+
 *	| greeting (greeting.h): HELLO or ACCEPT   |   qpn    |   psn    |
 *	+-------+-----+-----------+----------+-----+----------+----------+
 *	|  lid  | mtu | reads_out | reads_in | link layer | gid type | 0  |
 *	+-------+-----+-----------+----------+------------+----------+----+ 72
 *	| gid, 16 bytes                                  | zero, 8 bytes  |
 *	+------------------------------------------------+----------------+ 96
 *
 *	caller				listener
 *	HELLO    ------------------->	within handshake_timeout_ms, else dropped
 *		 <-------------------	ACCEPT, its queue pair sends and receives; or a refusal
 *					(greeting.h, at most REFUSAL_SIZE bytes), then close
 *	READY    ------------------->	now the caller's does too: the listener may send
 *					(8 bytes, within handshake_timeout_ms)
 *		 nothing more		the end of either socket is the end of the connection
 *
 * qpn and psn have 24 bits. mtu is an enum ibv_mtu. reads_out is how many READs and atomics this
 * end has in flight at most, reads_in how many it serves at once. The lid is 0 on Ethernet, and the
 * gid type 0 on InfiniBand. Magic and version stand where they do in every greeting, so that
 * another version is known by its first bytes whatever its size. Pure functions, no sockets: the
 * fuzzer drives them.
 */
#ifndef FABRIC_VERBS_EXCHANGE_H
#define FABRIC_VERBS_EXCHANGE_H

#include "fabric/verbs/greeting.h"

#define EXCHANGE_SIZE	    96
#define EXCHANGE_READY_SIZE 8
#define EXCHANGE_ANSWER_MAX REFUSAL_SIZE
static_assert(EXCHANGE_SIZE <= EXCHANGE_ANSWER_MAX, "an answer is either of them");

enum exchange_link {
	EXCHANGE_INFINIBAND = 1,
	EXCHANGE_ETHERNET = 2,
};

/* How packets between the ends are wrapped. */
enum exchange_gid_type {
	EXCHANGE_GID_IB = 0,
	EXCHANGE_GID_ROCE_V1 = 1,
	EXCHANGE_GID_ROCE_V2 = 2,
};

struct exchange {
	struct greeting greeting;
	uint32_t qpn, psn;
	uint16_t lid;
	uint8_t mtu;
	uint8_t reads_out, reads_in;
	uint8_t link;	  /* enum exchange_link */
	uint8_t gid_type; /* enum exchange_gid_type */
	uint8_t gid[16];
};

enum exchange_result {
	EXCHANGE_MORE,		/* good so far; more bytes are needed */
	EXCHANGE_DONE,		/* a HELLO or an ACCEPT; all its fields are within limits */
	EXCHANGE_REFUSED,	/* a refusal: refusal_decode has its text */
	EXCHANGE_OTHER_VERSION, /* one of ours, but of another version: say so and part */
	EXCHANGE_BAD,		/* something else */
};

/* Decodes all that was received so far. Tells a stranger by its first wrong byte, and one who goes
 * on behind the end of its message by that. On EXCHANGE_BAD *reason says why. */
enum exchange_result exchange_decode(const uint8_t *bytes, size_t available,
				     struct exchange *exchange, const char **reason);

/* Writes EXCHANGE_SIZE bytes; magic and version are filled in here. */
void exchange_encode(uint8_t *to, const struct exchange *exchange);

/* Writes EXCHANGE_READY_SIZE bytes. */
void exchange_encode_ready(uint8_t *to);
/* Is that a READY, or its beginning? EXCHANGE_MORE, _DONE or _BAD. */
enum exchange_result exchange_decode_ready(const uint8_t *bytes, size_t available);

#endif
