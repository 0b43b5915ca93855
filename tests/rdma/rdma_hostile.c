/*
 * Peers that break the rules: hellos, records, credit and descriptors that lie. Each costs the liar
 * its connection, at once, and nobody else anything: after each lie a good client is served.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "raw.h"

static struct server server;
static RdmaConn *good;
static struct watch watch;

static void begin(void)
{
	memset(&server, 0, sizeof(server));
	server_start(&server, serve_echo, &(RdmaOptions){.connectTimeoutMs = 1000});
	good = client_open(&server, NULL, &watch);
}

/* The good client is there as before, and so is the server. */
static void check_good(void)
{
	unsigned before = watch.messages;
	static struct watch other;
	RdmaConn *late;

	client_send(good, "still here", 10);
	watch_await(&watch.messages, before + 1);
	late = client_open(&server, NULL, &other);
	rdmaConnClose(late);
}

static void end(void)
{
	CHECK_EQ(watch.disconnected, 0);
	rdmaConnClose(good);
	server_end(&server);
}

/* Callers that do not even introduce themselves are turned down. */
static void test_strangers(void)
{
	struct wire_introduction introduction = {WIRE_MAGIC, WIRE_VERSION + 1};
	struct rmr_conn_options options = {.private_data = &introduction,
					   .private_length = sizeof(introduction)};
	char address[128];
	struct raw raw;

	begin();
	raw_open(&raw);
	snprintf(address, sizeof(address), "%s:%d", setup.host ? setup.host : "127.0.0.1",
		 server.port);
	if (setup_is_shm())
		snprintf(address, sizeof(address), "rdma-%d", server.port);
	CHECK_STATUS(rmr_connect(raw.queue, address, PATIENCE_MS, NULL, &raw.conn), RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "easy RDMA library");
	CHECK_STATUS(rmr_connect(raw.queue, address, PATIENCE_MS, &options, &raw.conn),
		     RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "version");
	raw.conn = NULL;
	raw_close(&raw);
	check_good();
	end();
}

/* Changes a right hello into a wrong one. */
typedef void spoil_function(struct wire_hello *hello);

static void spoil_magic(struct wire_hello *hello)
{
	hello->magic++;
}

static void spoil_version(struct wire_hello *hello)
{
	hello->version = 99;
}

static void spoil_small_ring(struct wire_hello *hello)
{
	hello->ring_size = 64;
}

static void spoil_odd_ring(struct wire_hello *hello)
{
	hello->ring_size = 5000;
}

static void spoil_large_ring(struct wire_hello *hello)
{
	hello->ring_size = 1u << 20;
}

static void spoil_huge_ring(struct wire_hello *hello)
{
	hello->ring_size = 1u << 31;
}

static void spoil_ring(struct wire_hello *hello)
{
	memset(&hello->ring, 0x55, sizeof(hello->ring));
}

static void spoil_space(struct wire_hello *hello)
{
	hello->space_size = 4096;
	memset(&hello->space, 0x55, sizeof(hello->space));
}

static void spoil_space_size(struct wire_hello *hello)
{
	hello->space = hello->ring;
	hello->space_size = 1ull << 40;
}

static void spoil_reserved(struct wire_hello *hello)
{
	hello->reserved = 1;
}

static spoil_function *const spoils[] = {
	spoil_magic,	 spoil_version, spoil_small_ring, spoil_odd_ring,   spoil_large_ring,
	spoil_huge_ring, spoil_ring,	spoil_space,	  spoil_space_size, spoil_reserved,
};

static void test_hellos(void)
{
	struct raw raw;

	begin();
	raw_open(&raw);
	for (unsigned i = 0; i < TEST_COUNT(spoils); i++) {
		raw_connect(&raw, &server);
		spoils[i](&raw.mine);
		raw_send(&raw, &raw.mine, sizeof(raw.mine));
		raw_expect_end(&raw);
	}
	/* Too short, and none at all. */
	raw_connect(&raw, &server);
	raw_send(&raw, &raw.mine, sizeof(raw.mine) - 8);
	raw_expect_end(&raw);
	raw_connect(&raw, &server);
	raw_expect_end(&raw);
	check_good();
	raw_close(&raw);
	end();
}

/* A message that is right, to begin with: the raw peer knows how to speak. */
static void test_right(void)
{
	struct {
		struct wire_record record;
		char text[16];
	} message = {.text = "raw"};
	struct rmr_completion completion = {0};
	struct raw raw;

	begin();
	raw_open(&raw);
	raw_connect(&raw, &server);
	raw_greet(&raw);
	message.record = raw_record(&raw, RECORD_MESSAGE, 3);
	raw_write(&raw, &message, sizeof(message), sizeof(message));
	while (completion.op != RMR_OP_RECV_IMM && completion.op != RMR_OP_RECV) {
		CHECK_EQ(rmr_wait(raw.queue, &completion, 1, PATIENCE_MS), 1);
		CHECK_OK(completion.status);
	}
	if (completion.op == RMR_OP_RECV)
		rmr_recv_release(raw.queue, completion.data);
	raw_close(&raw);
	check_good();
	end();
}

/* Records that are wrong in one way each. */
enum lie {
	LIE_KIND,
	LIE_SEQUENCE,
	LIE_RESERVED,
	LIE_LENGTH,
	LIE_LENGTH_HUGE,
	LIE_WRITTEN_LENGTH,
	LIE_WRITTEN_RANGE,
	LIE_NOTICE,
	LIE_NOTICE_DESCRIPTOR,
	LIE_COUNT,
};

static void tell_lie(struct raw *raw, enum lie lie)
{
	struct {
		struct wire_record record;
		uint8_t payload[96];
	} message = {.record = raw_record(raw, RECORD_MESSAGE, 96)};
	struct wire_written written = {.offset = UINT64_MAX - 3, .length = 8};
	struct memory_notice notice = {.key = 5, .address = 4096, .length = 4096};

	if (lie == LIE_KIND)
		message.record.kind = 77;
	else if (lie == LIE_SEQUENCE)
		message.record.sequence++;
	else if (lie == LIE_RESERVED)
		message.record.reserved = 1;
	else if (lie == LIE_LENGTH)
		message.record.length = 97;
	else if (lie == LIE_LENGTH_HUGE)
		message.record.length = UINT32_MAX;
	else if (lie == LIE_WRITTEN_LENGTH || lie == LIE_WRITTEN_RANGE)
		message.record.kind = RECORD_WRITTEN;
	else
		message.record.kind = RECORD_NOTICE;
	if (lie == LIE_WRITTEN_RANGE) {
		message.record.length = sizeof(written);
		memcpy(message.payload, &written, sizeof(written));
	} else if (lie == LIE_NOTICE_DESCRIPTOR) {
		message.record.length = sizeof(notice);
		memcpy(message.payload, &notice, sizeof(notice));
	}
	raw_write(raw, &message, sizeof(message), wire_room(lie == LIE_WRITTEN_RANGE ? 16 : 96));
}

static void test_records(void)
{
	struct raw raw;

	begin();
	raw_open(&raw);
	for (int lie = 0; lie < LIE_COUNT; lie++) {
		raw_connect(&raw, &server);
		raw_greet(&raw);
		tell_lie(&raw, (enum lie)lie);
		raw_expect_end(&raw);
	}
	check_good();
	raw_close(&raw);
	end();
}

/* Immediates that name no place, or credit that was never had; and SENDs that are no records. */
static void test_immediates(void)
{
	static const uint32_t immediates[] = {
		0, /* as before: nothing new */
		1u << 30, 0x7fffffff, WIRE_CREDIT, WIRE_CREDIT | 1, WIRE_CREDIT | 0x7fffffff};
	static const size_t lengths[] = {1, 17, 152};
	uint8_t junk[152] = {0};
	struct raw raw;

	begin();
	raw_open(&raw);
	for (unsigned i = 0; i < TEST_COUNT(immediates); i++) {
		raw_connect(&raw, &server);
		raw_greet(&raw);
		raw_immediate(&raw, immediates[i]);
		raw_expect_end(&raw);
	}
	for (unsigned i = 0; i < TEST_COUNT(lengths); i++) {
		raw_connect(&raw, &server);
		raw_greet(&raw);
		raw_send(&raw, junk, lengths[i]);
		raw_expect_end(&raw);
	}
	/* A ring that is filled again and again, faster than anybody could empty it. */
	raw_connect(&raw, &server);
	raw_greet(&raw);
	for (unsigned i = 1; i < 64; i++)
		raw_immediate(&raw, i % 2 ? raw.theirs.ring_size / WIRE_UNIT - 1 : 0);
	raw_expect_end(&raw);
	check_good();
	raw_close(&raw);
	end();
}

/* A client that never takes what it is sent: the server goes on, for all others. */
static void test_deaf(void)
{
	struct {
		struct wire_record record;
		struct flood flood;
	} message = {.flood = {.count = 100000, .length = 100}};
	struct raw raw;

	begin();
	raw_open(&raw);
	raw_connect(&raw, &server);
	raw_greet(&raw);
	message.record = raw_record(&raw, RECORD_MESSAGE_IMM, sizeof(message.flood));
	message.record.immediate = ORDER_FLOOD;
	raw_write(&raw, &message, sizeof(message), 32);
	test_sleep_ms(50);
	check_good();
	raw_close(&raw);
	check_good();
	end();
}

/* The other way round: servers that lie to our client. */
static void lie_to_callers(struct server *liar)
{
	struct raw raw;
	int port;

	raw_open(&raw);
	port = raw_listen(&raw);
	test_send(&liar->pipe, TEST_CHILD, &port, sizeof(port));
	for (unsigned i = 0; i < TEST_COUNT(spoils); i++) {
		raw_accept(&raw);
		spoils[i](&raw.mine);
		raw_send(&raw, &raw.mine, sizeof(raw.mine));
		raw_expect_end(&raw);
	}
	raw_accept(&raw); /* and then one that says nothing */
	raw_expect_end(&raw);
	test_await(&liar->pipe, TEST_CHILD);
	raw_close(&raw);
}

static void test_lying_server(void)
{
	RdmaOptions options = {.connectTimeoutMs = PATIENCE_MS};
	struct server liar = {0};
	RdmaConn *conn;
	int port;

	server_start(&liar, lie_to_callers, NULL);
	test_recv(&liar.pipe, TEST_PARENT, &port, sizeof(port));
	conn = client_make(&options, &watch);
	for (unsigned i = 0; i < TEST_COUNT(spoils); i++) {
		CHECK_RDMA_ERR(rdmaConnect(conn, setup_address(), port), RMR_PROTOCOL);
		CHECK(!rdmaConnIsConnected(conn));
	}
	rdmaConnClose(conn);
	options.connectTimeoutMs = 200;
	conn = client_make(&options, &watch);
	CHECK_RDMA_ERR(rdmaConnect(conn, setup_address(), port), RMR_TIMEOUT);
	CHECK_EQ(watch.connected, 0);
	CHECK_EQ(watch.disconnected, 0);
	rdmaConnClose(conn);
	server_end(&liar);
}

/* Takes what it is sent a unit at a time, so that there is always something new. */
static void take_by_drops(struct server *miser)
{
	struct rmr_completion completion = {0};
	struct raw raw;
	int port;

	raw_open(&raw);
	port = raw_listen(&raw);
	test_send(&miser->pipe, TEST_CHILD, &port, sizeof(port));
	raw_accept(&raw);
	raw_greet(&raw);
	for (;;) {
		bool has_come = rmr_wait(raw.queue, &completion, 1, 200) > 0;

		if (has_come && completion.op == RMR_OP_DISCONNECT)
			break;
		if (has_come && completion.op == RMR_OP_RECV && completion.status == RMR_OK)
			rmr_recv_release(raw.queue, completion.data);
		if (!has_come)
			raw_immediate(&raw, WIRE_CREDIT | 1);
	}
	raw_close(&raw);
}

/* Closing is bounded, however a peer draws it out. */
static void test_miser(void)
{
	struct server miser = {0};
	uint8_t data[1000] = {0};
	uint64_t begin_ns;
	RdmaConn *conn;
	int port;

	server_start(&miser, take_by_drops, NULL);
	test_recv(&miser.pipe, TEST_PARENT, &port, sizeof(port));
	conn = client_make(NULL, &watch);
	CHECK_RDMA(rdmaConnect(conn, setup_address(), port));
	while (rdmaConnSend(conn, data, sizeof(data)) > 0)
		;
	begin_ns = clock_now_ns();
	rdmaConnClose(conn);
	/* Longer than for one that takes nothing; and far less than the 50 s of all its drops. */
	CHECK((clock_now_ns() - begin_ns) / 1000000 > 5000);
	CHECK((clock_now_ns() - begin_ns) / 1000000 < 25000);
	test_wait(miser.pid);
	test_pipe_close(&miser.pipe);
}

const struct test hostile_tests[] = {
	{"hostile_strangers", test_strangers},
	{"hostile_hellos", test_hellos},
	{"hostile_right", test_right},
	{"hostile_records", test_records},
	{"hostile_immediates", test_immediates},
	{"hostile_deaf", test_deaf},
	{"hostile_lying_server", test_lying_server},
	{"hostile_miser", test_miser, TEST_SLOW, 60},
	{0},
};
