/*
 * Every limit of the tcp provider, in one place. Those on the wire bind both sides; a peer that
 * goes beyond them loses its connection.
 */
#ifndef FABRIC_TCP_LIMITS_H
#define FABRIC_TCP_LIMITS_H

/* What rmr_device_info tells. */
#define TCP_MESSAGE_MAX	 (1u << 30)
#define TCP_TRANSFER_MAX (1ull << 40)
#define TCP_INLINE_MAX	 1024
#define TCP_DEPTH_MAX	 8192
#define TCP_SLOTS_MAX	 65536
#define TCP_REGIONS_MAX	 65536 /* their index is 16 bits on the wire */

/* On the wire: requests that one side may have unanswered, whatever its depth. */
#define TCP_SERVED_MAX 1024u

/* A SEND up to this length is sent unasked, within the window; a longer one asks by WANT. */
#define TCP_EAGER_MAX 65536u

/* Messages that a connection may hold for a queue whose slots are all taken. What we offer is
 * between MIN and MAX by the number of slots; MAX is also what we accept being offered. */
#define TCP_WINDOW_MESSAGES_MIN 16u
#define TCP_WINDOW_MESSAGES_MAX 512u
#define TCP_WINDOW_BYTES	(256u << 10)
#define TCP_WINDOW_BYTES_MAX	(1u << 30)

/* Sending: a payload up to COPY_MAX is copied behind its header, a longer one is sent from where
 * it lies. A block is what one connection can have encoded and not yet handed to its socket. */
#define TCP_COPY_MAX	   2048u
#define TCP_BLOCK_BYTES	   (64u << 10)
#define TCP_BLOCK_SEGMENTS 64u
#define TCP_BLOCKS_KEPT	   8u /* free ones that a queue keeps for reuse */

/* A READ from here on goes by the wire's better way, where it has one. */
#define TCP_LEND_MIN (64u << 10)

/* Receiving: the queue's scratch buffer, and how much of a payload one call takes in. */
#define TCP_SCRATCH_BYTES  (64u << 10)
#define TCP_SCRATCH_BEHIND (4u << 10) /* of it, behind a payload of at least DIRECT_MIN */
#define TCP_DIRECT_MIN	   (16u << 10)
#define TCP_DIRECT_ALONE   (256u << 10) /* a longer rest is asked for alone */
#define TCP_DIRECT_MAX	   (4u << 20)
#define TCP_RECEIVE_ROUNDS 8	      /* calls of recv before another connection's turn */
#define TCP_TRANSMIT_MAX   (8u << 20) /* bytes sent before another connection's turn */

/* Polling: see progress.c. */
#define TCP_HOT_MAX	       4
#define TCP_HOT_AFTER	       3    /* times that it had something, since the owner last slept */
#define TCP_COOL_AFTER	       4096 /* polls that found nothing */
#define TCP_DISPATCH_EVERY_MAX 128  /* polls between two looks at the other connections */
#define TCP_RING_POLLS	       8    /* polls that may live on completions already there */

/* The helper thread takes over when the owner has not polled for so long; MAX is for one who polled
 * all the time before. */
#define TCP_HELPER_AFTER_NS	1000000u
#define TCP_HELPER_AFTER_MAX_NS 4000000u

#endif
