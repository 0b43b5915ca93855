/*
 * Links to the data plane by peers that say the wrong thing: tokens of others, buffers that are
 * none, memory that goes without a word. Each hurts only itself.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "data_plane_raw.h"

#define PEER_ID 4000u /* and the numbers that follow */

struct peer {
	struct rmr_domains *domains;
	struct rmr_link *link;
	struct rmr_arena *arena, *letters;
	struct rmr_domains_region *region, *letters_region;
};

static enum rmr_status peer_try(struct peer *peer, const struct registered *registered,
				size_t token_length)
{
	struct rmr_link_options options = {.private_data = registered->token,
					   .private_length = token_length};
	enum rmr_status status;

	CHECK_OK(rmr_domains_open(&setup.device, 1, NULL, &peer->domains));
	status = rmr_link_connect(peer->domains, registered->address, 5000 * (int)TEST_TIME_FACTOR,
				  &options, &peer->link);
	if (status != RMR_OK) {
		rmr_domains_close(peer->domains);
		return status;
	}
	CHECK_OK(rmr_arena_open(MIB, RMR_ARENA_PEERS_WRITE, &peer->arena));
	CHECK_OK(rmr_arena_open(65536, 0, &peer->letters));
	CHECK_OK(rmr_domains_region_open(peer->domains, rmr_arena_base(peer->arena), MIB,
					 RMR_READ | RMR_WRITE, &peer->region));
	CHECK_OK(rmr_domains_region_open(peer->domains, rmr_arena_base(peer->letters), 65536, 0,
					 &peer->letters_region));
	return RMR_OK;
}

static void peer_close(struct peer *peer)
{
	rmr_link_close(peer->link);
	rmr_domains_region_close(peer->region);
	rmr_domains_region_close(peer->letters_region);
	rmr_domains_close(peer->domains);
	rmr_arena_close(peer->arena);
	rmr_arena_close(peer->letters);
}

static void peer_send(struct peer *peer, const void *bytes, size_t length)
{
	struct rmr_link_work work = {
		.op = RMR_OP_SEND,
		.flags = RMR_UNSIGNALED,
		.source = rmr_arena_base(peer->letters),
		.length = length,
		.region = peer->letters_region,
	};

	memcpy(rmr_arena_base(peer->letters), bytes, length);
	CHECK_OK(rmr_link_post(peer->link, &work));
}

/* The next message, or false: the server has closed the link. */
static bool peer_hear(struct peer *peer, struct plane_message *message)
{
	uint64_t deadline_ns = clock_deadline_ns(10000 * (int)TEST_TIME_FACTOR);
	struct rmr_link_event event;

	while (!clock_passed(deadline_ns)) {
		bool is_right;

		if (rmr_domains_wait(peer->domains, &event, 1, 100) < 1)
			continue;
		if (event.op == RMR_OP_DISCONNECT)
			return false;
		if (event.op != RMR_OP_RECV)
			continue;
		is_right = plane_decode(event.data, event.length, message);
		rmr_domains_recv_release(peer->domains, &event);
		CHECK(is_right);
		return true;
	}
	TEST_FAIL("the server says nothing, and does not close the link");
}

static struct plane_message peer_buffer(struct peer *peer, unsigned id)
{
	struct plane_message message = {.op = PLANE_BUFFER, .id = id, .ptr = 4096, .length = MIB};

	CHECK_OK(rmr_link_export(peer->link, peer->region, &message.descriptor));
	return message;
}

static void test_tokens(void)
{
	struct registered registered = {0}, wrong;
	struct service service;
	kv_control_t *control;
	struct peer peer, other;

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	CHECK_EQ(raw_register(control, PEER_ID, NULL, &registered), GRPC_OK);
	wrong = registered;
	wrong.token[15] ^= 1;
	CHECK_STATUS(peer_try(&other, &wrong, PLANE_TOKEN_SIZE), RMR_REFUSED);
	CHECK_STATUS(peer_try(&other, &registered, PLANE_TOKEN_SIZE - 1), RMR_REFUSED);
	CHECK_STATUS(peer_try(&other, &registered, 0), RMR_REFUSED);
	CHECK_OK(peer_try(&peer, &registered, PLANE_TOKEN_SIZE));
	/* Good for one link. */
	CHECK_STATUS(peer_try(&other, &registered, PLANE_TOKEN_SIZE), RMR_REFUSED);
	CHECK_EQ(control_figure(control, "control.plane.links_refused"), 4);
	peer_close(&peer);
	control_await_figure(control, "control.plane.links", 1);
	CHECK_STATUS(peer_try(&other, &registered, PLANE_TOKEN_SIZE), RMR_REFUSED);
	kv_control_close(control);
	service_stop(&service);
}

enum nonsense {
	NO_BYTES,
	TOO_SHORT,
	TOO_LONG,
	WRONG_OP,
	SERVERS_OP,
	WRONG_ID,
	NO_LENGTH,
	LENGTH_OVERFLOWS,
	LONGER_THAN_MEMORY,
	BAD_DESCRIPTOR,
	SHORT_DESCRIPTOR,
	TWICE,
	GONE_BEFORE,
	NONSENSES,
};

static void send_nonsense(struct peer *peer, enum nonsense what)
{
	struct plane_message message = peer_buffer(peer, 3), answer;
	size_t length = sizeof(message);

	switch (what) {
	case NO_BYTES:
		length = 0;
		break;
	case TOO_SHORT:
		length = PLANE_SHORT - 1;
		break;
	case TOO_LONG: {
		static uint8_t bytes[sizeof(message) + 8];

		memcpy(bytes, &message, sizeof(message));
		peer_send(peer, bytes, sizeof(bytes));
		return;
	}
	case WRONG_OP:
		message.op = 77;
		break;
	case SERVERS_OP:
		message.op = PLANE_BUFFER_KEY;
		message.rkey = 1;
		length = PLANE_SHORT;
		break;
	case WRONG_ID:
		message.id = PLANE_MAX_BUFFERS;
		break;
	case NO_LENGTH:
		message.length = 0;
		break;
	case LENGTH_OVERFLOWS:
		message.ptr = UINT64_MAX - MIB / 2;
		break;
	case LONGER_THAN_MEMORY:
		message.length = MIB + 1;
		break;
	case BAD_DESCRIPTOR:
		memset(&message.descriptor, 0x5a, sizeof(message.descriptor));
		break;
	case SHORT_DESCRIPTOR:
		length = PLANE_SHORT;
		break;
	case TWICE:
		peer_send(peer, &message, length);
		CHECK(peer_hear(peer, &answer));
		CHECK_EQ(answer.op, PLANE_BUFFER_KEY);
		break;
	default:
		message = (struct plane_message){.op = PLANE_BUFFER_GONE, .id = 2};
		length = PLANE_SHORT;
	}
	peer_send(peer, &message, length);
}

static void test_hostile_links(void)
{
	struct service service;
	kv_control_t *control;
	struct plane_message answer;

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	put_there(control, MIB);
	for (int i = 0; i < NONSENSES; i++) {
		struct registered registered = {0};
		struct peer peer;

		CHECK_EQ(raw_register(control, PEER_ID + (uint32_t)i, NULL, &registered), GRPC_OK);
		CHECK_OK(peer_try(&peer, &registered, PLANE_TOKEN_SIZE));
		send_nonsense(&peer, (enum nonsense)i);
		if (peer_hear(&peer, &answer))
			TEST_FAIL("nonsense %d was answered", i);
		peer_close(&peer);
	}
	/* They have hurt only themselves. */
	control_await_figure(control, "control.plane.clients", 1);
	CHECK_EQ(control_figure(control, "control.plane.buffers"), 1);
	put_there(control, MIB + 1);
	kv_control_close(control);
	service_stop(&service);
}

/* A link without a buffer, then sixteen, of which one is taken back. */
static void test_buffers(void)
{
	struct registered registered = {0};
	struct plane_message message, answer;
	struct service service;
	kv_control_t *control;
	struct peer peer;
	struct place place = {.node_id = PEER_ID, .ptr = 4096, .length = MIB, .keys = 1};
	uint64_t rkeys[PLANE_MAX_BUFFERS];

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	put_there(control, MIB);
	CHECK_EQ(raw_register(control, PEER_ID, NULL, &registered), GRPC_OK);
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_INVALID_ARGUMENT);
	CHECK_OK(peer_try(&peer, &registered, PLANE_TOKEN_SIZE));
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_INVALID_ARGUMENT);
	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++) {
		message = peer_buffer(&peer, i);
		peer_send(&peer, &message, sizeof(message));
		CHECK(peer_hear(&peer, &answer));
		CHECK_EQ(answer.op, PLANE_BUFFER_KEY);
		CHECK_EQ(answer.id, i);
		rkeys[i] = answer.rkey;
	}
	place.rkey = rkeys[5];
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_OK);
	CHECK(value_is(rmr_arena_base(peer.arena), MIB, 7));
	message = (struct plane_message){.op = PLANE_BUFFER_GONE, .id = 5};
	peer_send(&peer, &message, PLANE_SHORT);
	CHECK(peer_hear(&peer, &answer));
	CHECK_EQ(answer.op, PLANE_BUFFER_GONE);
	CHECK_EQ(answer.id, 5);
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_INVALID_ARGUMENT);
	place.rkey = rkeys[6];
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_OK);
	/* Its memory goes without a word: the transfer fails, and so does the link. */
	rmr_domains_region_close(peer.region);
	peer.region = NULL;
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_INVALID_ARGUMENT);
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_INVALID_ARGUMENT);
	control_await_figure(control, "control.plane.bytes_held", 0);
	peer_close(&peer);
	kv_control_close(control);
	service_stop(&service);
}

/* Memory that may be read only, or written only. */
static void test_rights(void)
{
	struct service service;
	kv_control_t *control;

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	put_there(control, MIB);
	for (unsigned right = RMR_READ; right <= RMR_WRITE; right <<= 1) {
		struct registered registered = {0};
		struct plane_message message, answer;
		struct place place = {.ptr = 4096, .length = MIB, .keys = 1};
		struct rmr_domains_region *whole;
		struct peer peer;

		place.node_id = PEER_ID + right;
		CHECK_EQ(raw_register(control, place.node_id, NULL, &registered), GRPC_OK);
		CHECK_OK(peer_try(&peer, &registered, PLANE_TOKEN_SIZE));
		whole = peer.region;
		CHECK_OK(rmr_domains_region_open(peer.domains, rmr_arena_base(peer.arena), MIB,
						 right, &peer.region));
		message = peer_buffer(&peer, 0);
		peer_send(&peer, &message, sizeof(message));
		CHECK(peer_hear(&peer, &answer));
		place.rkey = answer.rkey;
		CHECK_EQ(raw_get(control, "there", &place, 0, NULL),
			 right == RMR_WRITE ? GRPC_OK : GRPC_INVALID_ARGUMENT);
		CHECK_EQ(raw_put(control, "new", &place, 0),
			 right == RMR_READ ? GRPC_OK : GRPC_INVALID_ARGUMENT);
		rmr_domains_region_close(whole);
		peer_close(&peer);
	}
	kv_control_close(control);
	service_stop(&service);
}

const struct test link_tests[] = {
	{"tokens", test_tokens},
	{"hostile_links", test_hostile_links},
	{"buffers", test_buffers},
	{"rights", test_rights},
	{0},
};
