/* What may come over the socket of a shm connection, good and bad. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/shm/packet.h"
#include "fabric/shm/ring.h"
#include "harness/test.h"

static struct shm_packet good(enum packet_type type)
{
	struct shm_packet packet = {
		.magic = PACKET_MAGIC,
		.version = PACKET_VERSION,
		.type = (uint8_t)type,
	};

	if (type == PACKET_HELLO || type == PACKET_ACCEPT) {
		packet.ring_cells = RING_CELLS;
		packet.recv_size = 1;
		packet.max_regions = 1;
		packet.private_length = RMR_PRIVATE_MAX;
	}
	if (type == PACKET_GRANT || type == PACKET_REVOKE)
		packet.arena_id = 1;
	if (type == PACKET_GRANT)
		packet.arena_size = 4096;
	return packet;
}

static void test_good_ones(void)
{
	for (int type = PACKET_HELLO; type <= PACKET_BYE; type++) {
		struct shm_packet packet = good(type);

		CHECK(packet_check(&packet, sizeof(packet), packet_fds(type)) == NULL);
	}
}

static void spoil_magic(struct shm_packet *p)
{
	p->magic ^= 1;
}
static void spoil_version(struct shm_packet *p)
{
	p->version++;
}
static void spoil_type_low(struct shm_packet *p)
{
	p->type = 0;
}
static void spoil_type_high(struct shm_packet *p)
{
	p->type = PACKET_BYE + 1;
}
static void spoil_ring(struct shm_packet *p)
{
	p->ring_cells *= 2;
}
static void spoil_recv_size(struct shm_packet *p)
{
	p->recv_size = 0;
}
static void spoil_no_regions(struct shm_packet *p)
{
	p->max_regions = 0;
}
static void spoil_many_regions(struct shm_packet *p)
{
	p->max_regions = UINT32_MAX;
}
static void spoil_private(struct shm_packet *p)
{
	p->private_length = RMR_PRIVATE_MAX + 1;
}
static void spoil_arena_id(struct shm_packet *p)
{
	p->arena_id = 0;
}
static void spoil_arena_size(struct shm_packet *p)
{
	p->arena_size = 0;
}
static void spoil_arena_writable(struct shm_packet *p)
{
	p->arena_writable = 2;
}
static void spoil_reason(struct shm_packet *p)
{
	memset(p->reason, 'x', sizeof(p->reason));
}

static void test_bad_ones(void)
{
	static const struct {
		enum packet_type type;
		void (*spoil)(struct shm_packet *packet);
		const char *says;
	} cases[] = {
		{PACKET_HELLO, spoil_magic, "not Remora"},
		{PACKET_HELLO, spoil_version, "another version"},
		{PACKET_WAKE, spoil_type_low, "unknown"},
		{PACKET_WAKE, spoil_type_high, "unknown"},
		{PACKET_HELLO, spoil_ring, "ring"},
		{PACKET_ACCEPT, spoil_recv_size, "limits"},
		{PACKET_HELLO, spoil_no_regions, "limits"},
		{PACKET_ACCEPT, spoil_many_regions, "limits"},
		{PACKET_HELLO, spoil_private, "private"},
		{PACKET_GRANT, spoil_arena_id, "grant"},
		{PACKET_REVOKE, spoil_arena_id, "grant"},
		{PACKET_GRANT, spoil_arena_size, "grant"},
		{PACKET_GRANT, spoil_arena_writable, "grant"},
		{PACKET_REJECT, spoil_reason, "endless"},
	};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct shm_packet packet = good(cases[i].type);
		const char *wrong;

		cases[i].spoil(&packet);
		wrong = packet_check(&packet, sizeof(packet), packet_fds(cases[i].type));
		CHECK(wrong != NULL);
		CHECK_CONTAINS(wrong, cases[i].says);
	}
}

static void test_lengths_and_descriptors(void)
{
	struct shm_packet packet = good(PACKET_HELLO);

	for (size_t length = 0; length < sizeof(packet); length++)
		CHECK(packet_check(&packet, length, 2) != NULL);
	CHECK(packet_check(&packet, sizeof(packet), 0) != NULL);
	CHECK(packet_check(&packet, sizeof(packet), 1) != NULL);
	CHECK(packet_check(&packet, sizeof(packet), 3) != NULL);
}

/* A packet without a byte, but with three descriptors. */
static bool send_empty(int socket, const int extra[3])
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control = {.header = {.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(3 * sizeof(int))}};
	struct iovec nothing = {.iov_base = &control, .iov_len = 0};
	struct msghdr message = {.msg_iov = &nothing,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.header), extra, 3 * sizeof(int));
	return sendmsg(socket, &message, 0) == 0;
}

static void test_send_receive(void)
{
	struct shm_packet out = good(PACKET_GRANT), in;
	struct packet_sender sender = {0};
	int sockets[2], fds[PACKET_FDS], before, on = 1, extra[3] = {0, 1, 2};

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
	CHECK_EQ(setsockopt(sockets[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	CHECK_STATUS(packet_receive(sockets[1], &in, fds, NULL), RMR_AGAIN);
	before = test_open_fds();
	CHECK_OK(packet_send(sockets[0], &out, extra));
	CHECK_OK(packet_receive(sockets[1], &in, fds, &sender));
	CHECK_EQ(sender.pid, getpid());
	CHECK_EQ(sender.uid, geteuid());
	CHECK(fds[0] >= 0 && fds[1] == -1);
	packet_close_fds(fds);

	/* Descriptors that do not belong to the packet are closed, not leaked. */
	out = good(PACKET_GRANT);
	CHECK_OK(packet_send(sockets[0], &out, extra));
	out.type = PACKET_HELLO;
	CHECK_OK(packet_send(sockets[0], &out, extra));
	CHECK_OK(packet_receive(sockets[1], &in, fds, NULL));
	packet_close_fds(fds);
	CHECK_STATUS(packet_receive(sockets[1], &in, fds, NULL), RMR_PROTOCOL);
	CHECK_EQ(test_open_fds(), before);

	/* Nor are those that come with an empty packet, before or after anyone is known. */
	CHECK(send_empty(sockets[0], extra));
	CHECK_STATUS(packet_receive(sockets[1], &in, fds, NULL), RMR_DISCONNECTED);
	CHECK_EQ(test_open_fds(), before);

	/* Too long, and then the end. */
	CHECK_EQ(send(sockets[0], (char[4096]){0}, 4096, 0), 4096);
	CHECK_STATUS(packet_receive(sockets[1], &in, fds, NULL), RMR_PROTOCOL);
	close(sockets[0]);
	CHECK_STATUS(packet_receive(sockets[1], &in, fds, NULL), RMR_DISCONNECTED);
	CHECK_STATUS(packet_send(sockets[1], &out, extra), RMR_DISCONNECTED);
}

static const struct test tests[] = {
	{"good_ones", test_good_ones},
	{"bad_ones", test_bad_ones},
	{"lengths_and_descriptors", test_lengths_and_descriptors},
	{"send_receive", test_send_receive},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "shm_packet", tests, TEST_COUNT(tests));
}
