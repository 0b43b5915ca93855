/*
 * The easy library's side: a server that answers, and clients that send.
 *
 * A message without an immediate is part of a stream, and only counted; one with ECHO comes back;
 * one with REPORT is answered when all before it has been taken.
 */
#include <err.h>
#include <remora/rdma.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "perf.h"

enum { ECHO = 1, REPORT = 2 };

/* The clock is looked at once in so many messages. */
#define LOOK 64

static void check(int result)
{
	if (result != RDMA_OK)
		errx(1, "%s", rdmaError());
}

/* ------------------------------------------------------------------------------------------
 * Server
 */

static uint64_t received;

static void count(RdmaConn *conn, const void *data, size_t length)
{
	(void)conn;
	received += *(const volatile uint8_t *)data + length;
}

static void answer(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	static uint8_t own[1 << 20]; /* as the bare one, which does not copy what came either */

	received += *(const volatile uint8_t *)data;
	if (rdmaConnSendWithImm(conn, imm, own, length) != length)
		errx(1, "no answer: %s", rdmaError());
}

static void accepted(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	rdmaConnSetRecvCallback(conn, count);
	rdmaConnSetRecvImmCallback(conn, answer);
}

static const char *address_of(const struct perf_config *config)
{
	static char address[256];

	snprintf(address, sizeof(address), "%s://%s", config->device,
		 config->host ? config->host : "127.0.0.1");
	return address;
}

void easy_serve(struct perf_side *side)
{
	RdmaListener *listener;
	char port[16];

	check(rdmaServer(&listener, address_of(side->config), 0));
	rdmaServerSetAcceptCallback(listener, accepted);
	snprintf(port, sizeof(port), "%d", rdmaServerPort(listener));
	pair_ready(side, port);
	check(rdmaServerStart(listener));
}

/* ------------------------------------------------------------------------------------------
 * Clients
 */

struct run {
	const struct perf_side *side;
	uint8_t *data;
	uint64_t begin_ns, end_ns; /* of the time, and when it really ended */
	uint64_t sent;
	bool is_over;
	sem_t done;
};

static RdmaConn *open_run(struct perf_side *side, struct run *run)
{
	RdmaConn *conn = rdmaConn();

	run->side = side;
	run->data = calloc(1, side->size);
	if (!conn || !run->data || sem_init(&run->done, 0, 0))
		errx(1, "no memory");
	rdmaConnSetUserData(conn, run);
	return conn;
}

static bool is_time_over(const struct run *run)
{
	return clock_now_ns() - run->begin_ns >= (uint64_t)(run->side->config->seconds * 1e9);
}

/* Asleep: the program's thread has the same core as the runtime. */
static void await(struct run *run)
{
	while (sem_wait(&run->done) != 0)
		;
}

static void bounce(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	struct run *run = rdmaConnUserData(conn);

	if (++run->sent % LOOK == 0 && is_time_over(run)) {
		run->end_ns = clock_now_ns();
		sem_post(&run->done);
		return;
	}
	received += *(const volatile uint8_t *)data;
	if (rdmaConnSendWithImm(conn, imm, run->data, length) != length)
		errx(1, "%s", rdmaError());
}

double easy_round_trip(struct perf_side *side)
{
	struct run run = {0};
	RdmaConn *conn = open_run(side, &run);

	rdmaConnSetRecvImmCallback(conn, bounce);
	check(rdmaConnect(conn, address_of(side->config), atoi(side->address)));
	run.begin_ns = clock_now_ns();
	if (rdmaConnSendWithImm(conn, ECHO, run.data, side->size) != side->size)
		errx(1, "%s", rdmaError());
	await(&run);
	return (double)(run.end_ns - run.begin_ns) / (double)run.sent;
}

/* The report has come back: everything was taken. */
static void finish(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	struct run *run = rdmaConnUserData(conn);

	(void)imm;
	(void)data;
	(void)length;
	run->end_ns = clock_now_ns();
	sem_post(&run->done);
}

/* Sends as much as there is room for. */
static void pump(RdmaConn *conn)
{
	struct run *run = rdmaConnUserData(conn);

	/* The bare one's time begins when it is connected, too. */
	if (!run->begin_ns)
		run->begin_ns = clock_now_ns();
	while (!run->is_over) {
		size_t sent = rdmaConnSend(conn, run->data, run->side->size);

		if (sent == RDMA_SEND_ERR)
			errx(1, "%s", rdmaError());
		if (sent == 0)
			return;
		if (++run->sent % LOOK == 0 || run->side->size > 4096)
			run->is_over = is_time_over(run);
	}
	if (!run->end_ns && rdmaConnSendWithImm(conn, REPORT, run->data, 1) == 1)
		run->end_ns = 1;
}

static double rate(const struct run *run)
{
	return (double)run->sent * 1e9 / (double)(run->end_ns - run->begin_ns);
}

double easy_stream(struct perf_side *side)
{
	struct run run = {0};
	RdmaConn *conn = open_run(side, &run);

	rdmaConnSetConnectedCallback(conn, pump);
	rdmaConnSetSendableCallback(conn, pump);
	rdmaConnSetRecvImmCallback(conn, finish);
	check(rdmaConnect(conn, address_of(side->config), atoi(side->address)));
	await(&run);
	return rate(&run);
}

double easy_bandwidth(struct perf_side *side)
{
	return easy_stream(side) * (double)side->size;
}

double easy_stream_thread(struct perf_side *side)
{
	struct run run = {0};
	RdmaConn *conn = open_run(side, &run);

	rdmaConnSetRecvImmCallback(conn, finish);
	check(rdmaConnect(conn, address_of(side->config), atoi(side->address)));
	run.begin_ns = clock_now_ns();
	while (run.sent % LOOK || !is_time_over(&run)) {
		size_t sent = rdmaConnSend(conn, run.data, side->size);

		if (sent == RDMA_SEND_ERR)
			errx(1, "%s", rdmaError());
		run.sent += sent > 0;
	}
	while (rdmaConnSendWithImm(conn, REPORT, run.data, 1) == 0)
		;
	await(&run);
	return rate(&run);
}
