/* See victim.h. The two processes share a page of state and the memory that is served. */
#include "victim.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define CONNS_MAX 64

struct service {
	struct victim *victim;
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_listener *listener;
	struct rmr_region *readable, *writable;
	struct rmr_conn *conns[CONNS_MAX];
	void *held[VICTIM_SLOTS];
	int held_count;
};

static void export_to(struct service *service, struct rmr_conn *conn)
{
	struct victim_board *board = service->victim->board;
	struct rmr_descriptor descriptor;

	CHECK_OK(rmr_region_export(service->readable, conn, &descriptor));
	memcpy(&board->readable, &descriptor, sizeof(descriptor));
	CHECK_OK(rmr_region_export(service->writable, conn, &descriptor));
	memcpy(&board->writable, &descriptor, sizeof(descriptor));
}

static void take_callers(struct service *service)
{
	struct victim_board *board = service->victim->board;
	struct rmr_request *request;
	struct rmr_conn *conn;

	while (rmr_listener_next(service->listener, 0, &request) == RMR_OK) {
		if (rmr_accept(request, service->queue, NULL, &conn) != RMR_OK)
			continue;
		export_to(service, conn);
		for (int i = 0; i < CONNS_MAX; i++) {
			if (!service->conns[i]) {
				service->conns[i] = conn;
				break;
			}
		}
		atomic_fetch_add(&board->accepted, 1);
	}
}

static void take_completion(struct service *service, const struct rmr_completion *c)
{
	struct victim_board *board = service->victim->board;

	if (c->op == RMR_OP_RECV) {
		atomic_fetch_add(&board->messages, 1);
		if (atomic_load(&board->hold))
			service->held[service->held_count++] = c->data;
		else
			rmr_recv_release(service->queue, c->data);
	} else if (c->op == RMR_OP_DISCONNECT) {
		for (int i = 0; i < CONNS_MAX; i++) {
			if (service->conns[i] == c->conn)
				service->conns[i] = NULL;
		}
		rmr_conn_close(c->conn);
		atomic_store(&board->last_status, c->status);
		atomic_fetch_add(&board->lost, 1);
	}
}

static void serve(void *arg)
{
	struct service service = {.victim = arg};
	struct victim_board *board = service.victim->board;
	struct rmr_queue_options options = {.recv_slots = VICTIM_SLOTS,
					    .recv_size = VICTIM_RECV_SIZE};
	struct rmr_listener_options listening = {.handshake_timeout_ms = 200, .backlog = 16};
	struct rmr_completion c;
	struct rusage usage;

	CHECK_OK(rmr_device_open("tcp", NULL, &service.device));
	CHECK_OK(rmr_queue_open(service.device, &options, &service.queue));
	CHECK_OK(rmr_region_open(service.device, service.victim->memory, VICTIM_MEMORY, RMR_READ,
				 &service.readable));
	CHECK_OK(rmr_region_open(service.device, service.victim->memory, VICTIM_MEMORY,
				 RMR_READ | RMR_WRITE | RMR_ATOMIC, &service.writable));
	CHECK_OK(rmr_listener_open(service.device, "127.0.0.1:0", &listening, &service.listener));
	strcpy(board->address, rmr_listener_address(service.listener));
	atomic_store(&board->accepted, 0);
	while (!atomic_load(&board->stop)) {
		take_callers(&service);
		while (service.held_count && !atomic_load(&board->hold))
			rmr_recv_release(service.queue, service.held[--service.held_count]);
		if (rmr_wait(service.queue, &c, 1, 1) == 1)
			take_completion(&service, &c);
		getrusage(RUSAGE_SELF, &usage);
		atomic_store(&board->peak_kib, usage.ru_maxrss);
	}
	for (int i = 0; i < CONNS_MAX; i++)
		rmr_conn_close(service.conns[i]);
	rmr_listener_close(service.listener);
	rmr_region_close(service.readable);
	rmr_region_close(service.writable);
	rmr_queue_close(service.queue);
	rmr_device_close(service.device);
}

static void *share(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

void victim_start(struct victim *victim)
{
	struct rmr_descriptor descriptor;

	memset(victim, 0, sizeof(*victim));
	victim->board = share(sizeof(*victim->board));
	victim->memory = share(VICTIM_MEMORY);
	memset(victim->memory, 0x5a, VICTIM_MEMORY);
	atomic_store(&victim->board->accepted, -1);
	victim->pid = test_spawn(serve, victim);
	while (atomic_load(&victim->board->accepted) < 0)
		test_sleep_ms(1);
	CHECK_OK(rmr_device_open("tcp", NULL, &victim->device));
	CHECK_OK(rmr_queue_open(victim->device, NULL, &victim->queue));
	CHECK_OK(rmr_region_open(victim->device, victim->local, sizeof(victim->local), 0,
				 &victim->region));
	CHECK_OK(rmr_connect(victim->queue, victim->board->address, 5000, NULL, &victim->conn));
	while (atomic_load(&victim->board->accepted) < 1)
		test_sleep_ms(1);
	memcpy(&descriptor, &victim->board->writable, sizeof(descriptor));
	CHECK_OK(rmr_remote_open(victim->conn, &descriptor, &victim->remote));
}

static void witness_do(struct victim *victim, enum rmr_op op, size_t length)
{
	struct rmr_work work = {.op = op,
				.local = victim->local,
				.length = length,
				.region = victim->region,
				.remote = victim->remote,
				.offset = VICTIM_MEMORY - 64};
	struct rmr_completion c;

	CHECK_EQ(rmr_post(victim->conn, &work, 1), 1);
	CHECK_EQ(rmr_wait(victim->queue, &c, 1, 5000 * TEST_TIME_FACTOR), 1);
	CHECK_EQ(c.op, op);
	CHECK_EQ(c.status, RMR_OK);
}

void victim_check(struct victim *victim)
{
	static uint8_t round;
	uint8_t expected[64];

	memset(expected, ++round, sizeof(expected));
	memcpy(victim->local, expected, sizeof(expected));
	witness_do(victim, RMR_OP_WRITE, 64);
	memset(victim->local, 0, sizeof(victim->local));
	witness_do(victim, RMR_OP_READ, 64);
	CHECK_MEM(victim->local, expected, sizeof(expected));
	if (!atomic_load(&victim->board->hold))
		witness_do(victim, RMR_OP_SEND, 64);
}

void victim_expect_lost(struct victim *victim, int lost, enum rmr_status status)
{
	for (unsigned i = 0; i < 5000 * TEST_TIME_FACTOR; i++) {
		if (atomic_load(&victim->board->lost) >= lost)
			break;
		test_sleep_ms(1);
	}
	CHECK_EQ(atomic_load(&victim->board->lost), lost);
	CHECK_EQ(atomic_load(&victim->board->last_status), (int)status);
}

void victim_stop(struct victim *victim)
{
	rmr_conn_close(victim->conn);
	rmr_region_close(victim->region);
	rmr_queue_close(victim->queue);
	rmr_device_close(victim->device);
	atomic_store(&victim->board->stop, true);
	test_wait(victim->pid);
}
