/*
 * Calls to the control server as nobody sends them who keeps to the rules, on the connection of a
 * client of ours. What the files of data_plane_test share:
 *
 *	data_plane_test.c	places that are wrong or stale; registrations
 *	data_plane_links.c	links that say the wrong thing
 *	data_plane_lies.c	servers that cannot be trusted
 *	data_plane_deaths.c	clients that die, stop or lose patience
 */
#ifndef TESTS_CONTROL_DATA_PLANE_RAW_H
#define TESTS_CONTROL_DATA_PLANE_RAW_H

#include "control/client/internal.h"
#include "control_fixture.h"

#define MIB  ((size_t)1 << 20)
#define LONG (3 * MIB) /* fits into a message, too */

/* A place, as a client would name it. */
struct place {
	uint32_t node_id;
	uint64_t ptr, rkey, offset, length;
	unsigned keys; /* how many domain keys */
	uint64_t second_rkey;
};

/* In the client's own first buffer. */
struct place place_of(kv_control_t *control, size_t offset, size_t length);

/* timeout_ms 0: the client's. GRPC_CANCELLED: no answer came. response may be NULL; what it points
 * to is replaced, and the caller's. */
enum grpc_status raw_get(kv_control_t *control, const char *key, const struct place *place,
			 uint64_t timeout_ms, KvCache__GetResponse **response);
enum grpc_status raw_put(kv_control_t *control, const char *key, const struct place *place,
			 uint64_t timeout_ms);
/* What the trailer of the last get said. */
extern uint64_t told_length;

struct registered {
	uint8_t token[PLANE_TOKEN_SIZE];
	size_t token_length;
	char address[256]; /* without its kind */
};

/* `before` may be NULL: no token is sent. */
enum grpc_status raw_register(kv_control_t *control, uint32_t id, const struct registered *before,
			      struct registered *registered);

/* The key "there", with a value of number 7. */
void put_there(kv_control_t *control, size_t length);

/* Ended by one without a name. */
extern const struct test link_tests[], lie_tests[], death_tests[];

#endif
