/* See victim.h. The two processes share a page of state and the memory that is served. */
#include "victim.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "stranger.h"

#define CONNS_MAX   64
#define PATIENCE_MS (8000 * (int)TEST_TIME_FACTOR)
#define DEVICE	    "verbs:rxe0"
/* Private data of those who only try whether they are let in. */
#define VISITOR "visitor"

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

static uint8_t *writable_part(const struct victim *victim)
{
	return victim->memory + VICTIM_GUARD;
}

static uint8_t *readable_part(const struct victim *victim)
{
	return writable_part(victim) + VICTIM_WRITABLE + VICTIM_GUARD;
}

/* ------------------------------------------------------------------------------------------
 * The victim
 */

static void export_to(struct service *service, struct rmr_conn *conn)
{
	struct victim_board *board = service->victim->board;
	struct rmr_descriptor descriptor;

	CHECK_OK(rmr_region_export(service->readable, conn, &descriptor));
	memcpy(&board->readable, &descriptor, sizeof(descriptor));
	CHECK_OK(rmr_region_export(service->writable, conn, &descriptor));
	memcpy(&board->writable, &descriptor, sizeof(descriptor));
}

static void keep_conn(struct service *service, struct rmr_conn *conn)
{
	for (int i = 0; i < CONNS_MAX; i++) {
		if (!service->conns[i]) {
			service->conns[i] = conn;
			return;
		}
	}
	TEST_FAIL("more than %d connections", CONNS_MAX);
}

static bool is_visitor(const struct rmr_conn *conn)
{
	struct rmr_conn_info info;

	rmr_conn_get_info(conn, &info);
	return info.private_length == strlen(VISITOR);
}

static void take_callers(struct service *service)
{
	struct victim_board *board = service->victim->board;
	struct rmr_conn_options options = {.dead_after_ms = atomic_load(&board->dead_after_ms)};
	struct rmr_request *request;
	struct rmr_conn *conn;

	while (rmr_listener_next(service->listener, 0, &request) == RMR_OK) {
		if (rmr_accept(request, service->queue, &options, &conn) != RMR_OK)
			continue;
		keep_conn(service, conn);
		if (is_visitor(conn))
			continue;
		export_to(service, conn);
		atomic_fetch_add(&board->accepted, 1);
	}
}

static void take_end(struct service *service, const struct rmr_completion *c)
{
	struct victim_board *board = service->victim->board;
	bool counts = !is_visitor(c->conn);

	for (int i = 0; i < CONNS_MAX; i++) {
		if (service->conns[i] == c->conn)
			service->conns[i] = NULL;
	}
	rmr_conn_close(c->conn);
	if (!counts)
		return;
	atomic_store(&board->last_status, c->status);
	atomic_fetch_add(&board->lost, 1);
}

static void take_completion(struct service *service, const struct rmr_completion *c)
{
	struct victim_board *board = service->victim->board;

	switch (c->op) {
	case RMR_OP_RECV:
		CHECK(c->length <= VICTIM_RECV_SIZE);
		if (atomic_load(&board->hold))
			service->held[service->held_count++] = c->data;
		else
			rmr_recv_release(service->queue, c->data);
		atomic_fetch_add(&board->messages, 1);
		break;
	case RMR_OP_RECV_IMM:
		atomic_store(&board->last_length, c->length);
		atomic_store(&board->last_immediate, c->immediate);
		atomic_fetch_add(&board->immediates, 1);
		break;
	case RMR_OP_DISCONNECT:
		take_end(service, c);
		break;
	default:
		TEST_FAIL("a completion that nobody has posted for: %d", (int)c->op);
	}
}

static void open_service(struct service *service)
{
	struct rmr_queue_options options = {.recv_slots = VICTIM_SLOTS,
					    .recv_size = VICTIM_RECV_SIZE};

	CHECK_OK(rmr_device_open(DEVICE, NULL, &service->device));
	CHECK_OK(rmr_queue_open(service->device, &options, &service->queue));
	CHECK_OK(rmr_region_open(service->device, readable_part(service->victim), VICTIM_READABLE,
				 RMR_READ, &service->readable));
	CHECK_OK(rmr_region_open(service->device, writable_part(service->victim), VICTIM_WRITABLE,
				 RMR_READ | RMR_WRITE | RMR_ATOMIC, &service->writable));
	CHECK_OK(rmr_listener_open(service->device, STRANGER_HOST ":0", NULL, &service->listener));
	strcpy(service->victim->board->address, rmr_listener_address(service->listener));
}

static void serve(void *arg)
{
	struct service service = {.victim = arg};
	struct victim_board *board = service.victim->board;
	struct rmr_completion c;

	open_service(&service);
	atomic_store(&board->accepted, 0);
	while (!atomic_load(&board->stop)) {
		take_callers(&service);
		while (service.held_count && !atomic_load(&board->hold))
			rmr_recv_release(service.queue, service.held[--service.held_count]);
		if (rmr_wait(service.queue, &c, 1, 1) == 1)
			take_completion(&service, &c);
	}
	for (int i = 0; i < CONNS_MAX; i++)
		rmr_conn_close(service.conns[i]);
	rmr_listener_close(service.listener);
	rmr_region_close(service.readable);
	rmr_region_close(service.writable);
	rmr_queue_close(service.queue);
	rmr_device_close(service.device);
}

/* ------------------------------------------------------------------------------------------
 * The test's side
 */

static void *share(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

void victim_await(const atomic_int *counter, int least)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

	while (atomic_load(counter) < least && !clock_passed(deadline_ns))
		test_sleep_ms(1);
	if (atomic_load(counter) < least)
		TEST_FAIL("the victim has counted %d, not %d", atomic_load(counter), least);
}

void victim_spawn(struct victim *victim)
{
	memset(victim, 0, sizeof(*victim));
	victim->board = share(sizeof(*victim->board));
	victim->memory = share(VICTIM_MEMORY);
	memset(victim->memory, VICTIM_BYTE, VICTIM_MEMORY);
	atomic_store(&victim->board->accepted, -1);
	atomic_store(&victim->board->dead_after_ms, VICTIM_DEAD_AFTER);
	victim->pid = test_spawn(serve, victim);
	victim_await(&victim->board->accepted, 0);
}

void victim_open_witness(struct victim *victim)
{
	struct rmr_descriptor descriptor;

	CHECK_OK(rmr_device_open(DEVICE, NULL, &victim->device));
	CHECK_OK(rmr_queue_open(victim->device, NULL, &victim->queue));
	CHECK_OK(rmr_region_open(victim->device, victim->local, sizeof(victim->local), 0,
				 &victim->region));
	CHECK_OK(rmr_connect(victim->queue, victim->board->address, PATIENCE_MS, NULL,
			     &victim->conn));
	victim_await(&victim->board->accepted, 1);
	memcpy(&descriptor, &victim->board->writable, sizeof(descriptor));
	CHECK_OK(rmr_remote_open(victim->conn, &descriptor, &victim->remote));
}

void victim_start(struct victim *victim)
{
	victim_spawn(victim);
	victim_open_witness(victim);
}

static void witness_do(struct victim *victim, enum rmr_op op)
{
	struct rmr_work work = {.op = op,
				.local = victim->local,
				.length = VICTIM_WITNESS,
				.region = victim->region,
				.remote = victim->remote,
				.offset = VICTIM_WRITABLE - VICTIM_WITNESS};
	struct rmr_completion c;

	CHECK_EQ(rmr_post(victim->conn, &work, 1), 1);
	CHECK_EQ(rmr_wait(victim->queue, &c, 1, PATIENCE_MS), 1);
	CHECK_EQ(c.op, op);
	CHECK_EQ(c.status, RMR_OK);
}

void victim_check_witness(struct victim *victim)
{
	static uint8_t round;
	uint8_t expected[VICTIM_WITNESS];

	memset(expected, ++round, sizeof(expected));
	memcpy(victim->local, expected, sizeof(expected));
	witness_do(victim, RMR_OP_WRITE);
	memset(victim->local, 0, sizeof(victim->local));
	witness_do(victim, RMR_OP_READ);
	CHECK_MEM(victim->local, expected, sizeof(expected));
	if (!atomic_load(&victim->board->hold))
		witness_do(victim, RMR_OP_SEND);
}

void victim_check_caller(struct victim *victim)
{
	struct rmr_conn_options options = {.private_data = VISITOR,
					   .private_length = strlen(VISITOR)};
	struct rmr_conn *conn;

	/* Far less than a caller may take who has to be waited for. */
	CHECK_OK(rmr_connect(victim->queue, victim->board->address, 500 * TEST_TIME_FACTOR,
			     &options, &conn));
	rmr_conn_close(conn);
}

static void check_bytes(const uint8_t *bytes, size_t length, const char *what)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != VICTIM_BYTE)
			TEST_FAIL("byte %zu of the %s is 0x%x now", i, what, bytes[i]);
	}
}

void victim_check_memory(const struct victim *victim)
{
	const uint8_t *writable = writable_part(victim), *readable = readable_part(victim);

	check_bytes(victim->memory, VICTIM_GUARD, "first guard");
	check_bytes(writable, VICTIM_WRITABLE - VICTIM_WITNESS, "writable part");
	check_bytes(writable + VICTIM_WRITABLE, VICTIM_GUARD, "second guard");
	check_bytes(readable, VICTIM_READABLE, "readable part");
	check_bytes(readable + VICTIM_READABLE, VICTIM_GUARD, "last guard");
}

void victim_check(struct victim *victim)
{
	victim_check_witness(victim);
	victim_check_caller(victim);
	victim_check_memory(victim);
}

void victim_expect_lost(struct victim *victim, int lost, enum rmr_status status)
{
	victim_await(&victim->board->lost, lost);
	CHECK_EQ(atomic_load(&victim->board->lost), lost);
	if (status != RMR_OK)
		CHECK_EQ(atomic_load(&victim->board->last_status), (int)status);
}

/* Takes completions of the witness's SENDs until there are `wanted`, or none comes for so long. */
static int take_sends(struct victim *victim, int wanted, int quiet_ms)
{
	struct rmr_completion c;
	int count = 0;

	while (count < wanted && rmr_wait(victim->queue, &c, 1, quiet_ms) == 1) {
		CHECK_EQ(c.op, RMR_OP_SEND);
		CHECK_EQ(c.status, RMR_OK);
		count++;
	}
	return count;
}

int victim_count_slots(struct victim *victim)
{
	struct rmr_work work = {
		.op = RMR_OP_SEND, .flags = RMR_INLINE, .local = victim->local, .length = 8};
	int posted = VICTIM_SLOTS_ALL + 1, count;

	atomic_store(&victim->board->hold, true);
	for (int i = 0; i < posted; i++)
		CHECK_EQ(rmr_post(victim->conn, &work, 1), 1);
	/* A SEND completes when it has found a slot. */
	count = take_sends(victim, VICTIM_SLOTS_ALL, 1000 * (int)TEST_TIME_FACTOR);
	if (count == VICTIM_SLOTS_ALL)
		count += take_sends(victim, 1, 50 * (int)TEST_TIME_FACTOR);
	atomic_store(&victim->board->hold, false);
	if (count > 0)
		CHECK_EQ(count + take_sends(victim, posted - count, PATIENCE_MS), posted);
	return count;
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
