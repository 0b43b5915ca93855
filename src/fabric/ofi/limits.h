/*
 * Every limit of the ofi provider beyond those of the engine (fabric/tcp/limits.h), in one place.
 */
#ifndef FABRIC_OFI_LIMITS_H
#define FABRIC_OFI_LIMITS_H

/* A packet with its header is as long as what libfabric's rxm sends at once, without asking. */
#define OFI_PACKET_BYTES (16384u - 16u)

#define OFI_RECEIVES	64u	   /* packets that can arrive before somebody polls */
#define OFI_SENDS_MAX	16u	   /* packets of one connection in the hands of libfabric */
#define OFI_SENDS_SLAB	16u	   /* packets to send that are allocated at once */
#define OFI_STRAY_BYTES (8u << 20) /* of packets that came too early, by connection */
#define OFI_CONNS_MAX	65536u	   /* connections of a queue: 16 bits of their token */

#define OFI_LEASES     64u /* READs of one queue whose memory is lent at a time */
#define OFI_PUSHES_MAX 8u  /* READs of one connection whose data is with libfabric */
/* A region that is being closed: how long to wait for data that is on its way out of it. */
#define OFI_PUSH_PATIENCE_NS 1000000000ull
#define OFI_PUSH_LOOK_US     50

#define OFI_EVENTS	 32  /* completions taken at once */
#define OFI_DRAIN_ROUNDS 64  /* of that, before somebody else has a turn */
#define OFI_TX_SIZE	 256 /* operations of one queue in the hands of libfabric */
#define OFI_CQ_SIZE	 1024
#define OFI_DOOR_WAKES	 4096 /* times that one sleeps upon a door by which nothing comes */
#define OFI_DOOR_TURNS	 8    /* times that doors are asked in one poll while data is to come */
#define OFI_HOT_AFTER	 64   /* polls in a row, after which a descriptor is taken out */
/* Polls between two looks at the sockets: few while words come in, then more and more. */
#define OFI_CONTROL_EACH_MIN 8
#define OFI_CONTROL_EACH_MAX 32

/* Who was rung for does not sleep before he has heard what it was for, nor who sends before it has
 * left, or this has passed. */
#define OFI_AWAKE_NS 100000ull
/* Packets of which the peer says nothing: libfabric is called now and then, in case that it still
 * has them. */
#define OFI_LOOK_MIN_NS 20000000ull
#define OFI_LOOK_MAX_NS 1000000000ull

/* When a peer hung up, how long to wait for the packets that it says it has sent. */
#define OFI_LEAVE_NS 1000000000ull

#endif
