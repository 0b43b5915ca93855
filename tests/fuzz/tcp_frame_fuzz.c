/*
 * Fuzzes everything of the tcp provider that reads bytes of a peer.
 *
 * The first byte of an input says what it is for:
 *
 *	0	the codecs alone: frame_decode and handshake_decode, at every length
 *	1..	a real connection: its receive engine, over a socket pair, with a queue, a
 *		region, and works of ours in flight. The second byte selects the works, the
 *		third how the program behaves; then follow pieces, each with a byte for its
 *		length (0: all the rest), which are sent one after the other, and the queue is
 *		polled in between.
 *
 * What must hold, beside what the sanitizers see: the region lies between pages that cannot be
 * touched; a connection never holds more than the windows it offered; every work is completed
 * exactly once, in order; and the last thing that is said of a connection is its end.
 *
 * The key of the region is fixed, so that inputs can name it (tcp_frame_corpus.py).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/internal.h"

#define PAGE	  4096u
#define REGION	  (2 * PAGE)
#define KEY	  0x4b4b4b4b4b4b4b4bull
#define SLOTS	  2
#define RECV_SIZE (80u << 10)
#define WORKS	  8
#define MAX_INPUT (256u << 10)
#define MAX_HELD  SLOTS

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct rmr_device *device;
static struct rmr_queue *queue;
static struct rmr_region *region;
static uint8_t *memory;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct rmr_queue_options options = {.recv_slots = SLOTS, .recv_size = RECV_SIZE};
	struct tcp_region *tcp;
	uint8_t *pages;

	(void)argc;
	(void)argv;
	log_set_level(LOG_LEVEL_ERROR);
	pages = mmap(NULL, REGION + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert(pages != MAP_FAILED);
	memory = pages + PAGE;
	if (mprotect(memory, REGION, PROT_READ | PROT_WRITE) != 0 ||
	    rmr_device_open("tcp", NULL, &device) != RMR_OK ||
	    rmr_queue_open(device, &options, &queue) != RMR_OK ||
	    rmr_region_open(device, memory, REGION, RMR_READ | RMR_WRITE | RMR_ATOMIC, &region) !=
		    RMR_OK)
		abort();
	tcp = (struct tcp_region *)region;
	tcp->key = KEY;
	atomic_store(&tcp->slot->key, KEY);
	return 0;
}

static void fuzz_codecs(const uint8_t *data, size_t size)
{
	for (size_t have = 0; have <= size && have <= HANDSHAKE_SIZE; have++) {
		struct handshake handshake;
		const char *reason = NULL;
		enum handshake_result result = handshake_decode(data, have, &handshake, &reason);

		assert((result == HANDSHAKE_BAD) == (reason != NULL));
		if (result == HANDSHAKE_DONE) {
			uint8_t again[HANDSHAKE_SIZE];

			handshake_encode(again, &handshake);
			assert(memcmp(again, data, sizeof(again)) == 0);
		}
	}
	for (size_t at = 0; at < size;) {
		uint8_t again[FRAME_HEADER_MAX];
		const char *reason = NULL;
		struct frame frame;
		int used = frame_decode(data + at, size - at, &frame, &reason);

		if (used <= 0) {
			assert((used < 0) == (reason != NULL));
			break;
		}
		assert(frame_encode(again, &frame) == (size_t)used);
		assert(memcmp(again, data + at, (size_t)used) == 0);
		at += (size_t)used;
	}
}

struct run {
	struct rmr_conn *conn;
	int fd; /* the peer's end */
	uint8_t behaviour;
	uint64_t posted, completed;
	bool failing, over;
	void *held[MAX_HELD];
	int held_count;
};

static struct rmr_conn *open_pair(int *peer)
{
	struct rmr_conn_options options = {.depth = WORKS};
	struct tcp_request *request = calloc(1, sizeof(*request));
	struct rmr_conn *conn;
	int fds[2];

	if (!request ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
		abort();
	request->base.device = device;
	request->fd = fds[0];
	request->hello = (struct handshake){.kind = HANDSHAKE_HELLO,
					    .recv_size = 1 << 20,
					    .depth = 4,
					    .window_messages = 4,
					    .window_bytes = TCP_EAGER_MAX};
	if (rmr_accept(&request->base, queue, &options, &conn) != RMR_OK)
		abort();
	*peer = fds[1];
	return conn;
}

/* One of each kind, as far as the input selects them. */
static void post_works(struct run *run, uint8_t selection)
{
	struct rmr_descriptor descriptor;
	struct rmr_remote *remote;
	static const size_t lengths[WORKS] = {16, 4096, 8, 8, 10, 70000 % REGION, 64, 0};
	static const enum rmr_op ops[WORKS] = {RMR_OP_READ,	    RMR_OP_READ, RMR_OP_FETCH_ADD,
					       RMR_OP_COMPARE_SWAP, RMR_OP_SEND, RMR_OP_WRITE_IMM,
					       RMR_OP_WRITE,	    RMR_OP_READ};

	if (rmr_region_export(region, run->conn, &descriptor) != RMR_OK ||
	    rmr_remote_open(run->conn, &descriptor, &remote) != RMR_OK)
		abort();
	for (int i = 0; i < WORKS; i++) {
		struct rmr_work work = {.op = ops[i],
					.cookie = run->posted,
					.local = memory,
					.length = lengths[i],
					.region = region,
					.remote = remote};

		if ((selection >> i & 1) && rmr_post(run->conn, &work, 1) == 1)
			run->posted++;
	}
}

static void check_bounds(struct run *run)
{
	const struct tcp_conn *conn = (const struct tcp_conn *)run->conn;
	uint64_t bytes = 0;
	uint32_t count = 0;

	spin_lock_take(&queue->lock);
	for (const struct tcp_message *at = conn->waiting; at; at = at->next) {
		count++;
		bytes += at->op == FRAME_SEND ? at->length : 0;
	}
	assert(count <= conn->offered_messages + 1 && bytes <= conn->offered_bytes);
	assert(conn->response_tail - conn->response_head <= conn->served_limit);
	assert(conn->receive.carried < FRAME_HEADER_MAX);
	spin_lock_give(&queue->lock);
}

static void poll_all(struct run *run)
{
	struct rmr_completion c;

	while (!run->over && rmr_poll(queue, &c, 1) == 1) {
		assert(c.conn == run->conn);
		if (c.op == RMR_OP_DISCONNECT) {
			assert(run->completed == run->posted && c.status != RMR_OK);
			run->over = true;
		} else if (c.op == RMR_OP_RECV) {
			assert(c.length <= RECV_SIZE);
			run->held[run->held_count++] = c.data;
			if (!(run->behaviour & 1))
				rmr_recv_release(queue, run->held[--run->held_count]);
		} else if (c.op != RMR_OP_RECV_IMM) {
			assert(c.cookie == run->completed++);
			assert(c.status != RMR_OK || !run->failing);
			run->failing = c.status != RMR_OK;
		}
	}
}

/* What the connection sends is read away, unless the peer is one that does not read. */
static void drain_peer(struct run *run)
{
	static uint8_t sink[64 << 10];

	if (run->behaviour & 2)
		return;
	while (recv(run->fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		;
}

static void fuzz_connection(const uint8_t *data, size_t size)
{
	struct run run = {.behaviour = data[1]};
	size_t at = 2;

	run.conn = open_pair(&run.fd);
	post_works(&run, data[0]);
	while (at < size && !run.over) {
		size_t piece = data[at] ? data[at] : size - at - 1;

		at++;
		if (piece > size - at)
			piece = size - at;
		(void)!send(run.fd, data + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
		at += piece;
		poll_all(&run);
		check_bounds(&run);
		drain_peer(&run);
	}
	close(run.fd);
	while (run.held_count)
		rmr_recv_release(queue, run.held[--run.held_count]);
	run.behaviour = 0;
	if (data[1] & 4) { /* closed by us, at whatever moment */
		rmr_conn_close(run.conn);
	} else {
		while (!run.over)
			poll_all(&run);
		rmr_conn_close(run.conn);
	}
	assert(queue->recv.free_count == SLOTS && queue->pending_imm == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3 || size > MAX_INPUT)
		return 0;
	if (data[0] == 0)
		fuzz_codecs(data + 1, size - 1);
	else
		fuzz_connection(data + 1, size - 1);
	return 0;
}
