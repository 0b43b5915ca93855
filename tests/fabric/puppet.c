/*
 * The puppet's two halves: commands as the test gives them, and the process that carries them out.
 */
#include "puppet.h"

#include <string.h>

#define MAX_CONNS 8

enum verb {
	VERB_FILL,
	VERB_CHECK,
	VERB_SET,
	VERB_CHECK_GUARD,
	VERB_LOAD,
	VERB_STORE,
	VERB_EXPECT,
	VERB_SILENCE,
	VERB_SEND,
	VERB_FLOOD,
	VERB_SINK,
	VERB_DISCARD,
	VERB_CLOSE_REGION,
	VERB_DETACH_REGION,
	VERB_OPEN_REGION,
	VERB_CLOSE_CONN,
	VERB_DROP,
	VERB_ACCEPT,
	VERB_QUIT,
};

struct command {
	enum verb verb;
	int conn;
	int count;
	size_t at, length;
	uint64_t seed; /* or the byte, the value */
	enum rmr_op op;
	uint32_t immediate;
};

/* ------------------------------------------------------------------------------------------
 * The puppet's process
 */
static struct rmr_conn *conns[MAX_CONNS];

static unsigned rights_of(const struct node *node, const struct side_options *options)
{
	return options->rights ? options->rights : memory_rights(node, options->kind);
}

/* Returns the number of the new connection: the lowest that is free. */
static int accept_one(struct node *node, const struct side_options *options)
{
	int number = 0;

	while (conns[number] != NULL)
		CHECK(++number < MAX_CONNS);
	node_accept(node, &options->conn);
	conns[number] = node->conn;
	node_export(node);
	return number;
}

static void expect(struct node *node, const struct command *command)
{
	struct rmr_completion c;

	if (command->op == RMR_OP_DISCONNECT) {
		node_expect_disconnect(node, conns[command->conn]);
		return;
	}
	c = node_expect(node, command->op, RMR_OK);
	CHECK(c.conn == conns[command->conn]);
	CHECK_EQ(c.length, command->length);
	if (command->op == RMR_OP_RECV) {
		pattern_check(c.data, c.length, command->seed, "message to the puppet");
		rmr_recv_release(node->queue, c.data);
	} else {
		CHECK_EQ(c.immediate, command->immediate);
	}
}

/* Message i lies at a place of its own until it is sent, so that none changes under way. */
static void flood(struct node *node, const struct command *command)
{
	struct rmr_work work = {.op = RMR_OP_SEND, .length = command->length};
	int places = (int)(node->memory.size / (command->length + 1));
	int posted = 0, done = 0;

	CHECK(places > 0);
	work.region = node->memory.region;
	while (done < command->count) {
		work.local = node->memory.base + posted % places * command->length;
		if (posted < command->count && posted - done < places) {
			int taken;

			pattern_fill(work.local, work.length, command->seed + posted);
			taken = rmr_post(conns[0], &work, 1);
			CHECK(taken >= 0);
			posted += taken;
			if (taken > 0)
				continue;
		}
		node_expect(node, RMR_OP_SEND, RMR_OK);
		done++;
	}
}

static void sink(struct node *node, const struct command *command)
{
	int i;

	node->conn = conns[0];
	for (i = 0; i < command->count; i++)
		node_recv(node, command->length, command->seed + i);
}

static void discard(struct node *node, int count)
{
	while (count-- > 0) {
		struct rmr_completion c = node_next(node);

		CHECK_EQ(c.status, RMR_OK);
		CHECK(c.op == RMR_OP_RECV || c.op == RMR_OP_RECV_IMM);
		if (c.op == RMR_OP_RECV)
			rmr_recv_release(node->queue, c.data);
	}
}

/* Takes what is left of a connection up to its end, and closes it. */
static void drop(struct node *node, int number)
{
	struct rmr_completion c;

	while ((c = node_next(node)).op != RMR_OP_DISCONNECT) {
		CHECK(c.conn == conns[number]);
		if (c.op == RMR_OP_RECV)
			rmr_recv_release(node->queue, c.data);
	}
	CHECK(c.conn == conns[number]);
	rmr_conn_close(c.conn);
	conns[number] = NULL;
}

/* Commands about memory. */
static void obey_memory(struct node *node, struct command *command)
{
	uint8_t *at = node->memory.base + command->at;

	CHECK(command->at + command->length <= node->memory.size);
	if (command->verb == VERB_FILL)
		pattern_fill(at, command->length, command->seed);
	else if (command->verb == VERB_CHECK)
		pattern_check(at, command->length, command->seed, "puppet's memory");
	else if (command->verb == VERB_SET)
		memset(at, (int)command->seed, command->length);
	else if (command->verb == VERB_CHECK_GUARD)
		guard_check(at, command->length, (uint8_t)command->seed, "puppet's memory");
	else if (command->verb == VERB_LOAD)
		command->seed = __atomic_load_n((uint64_t *)at, __ATOMIC_SEQ_CST);
	else
		__atomic_store_n((uint64_t *)at, command->seed, __ATOMIC_SEQ_CST);
}

static void obey(struct node *node, struct command *command)
{
	switch (command->verb) {
	case VERB_EXPECT:
		expect(node, command);
		break;
	case VERB_SILENCE:
		node_expect_silence(node, command->count);
		break;
	case VERB_SEND:
		node->conn = conns[command->conn];
		node_send(node, command->length, command->seed);
		break;
	case VERB_FLOOD:
		flood(node, command);
		break;
	case VERB_SINK:
		sink(node, command);
		break;
	case VERB_DISCARD:
		discard(node, command->count);
		break;
	case VERB_CLOSE_REGION:
		rmr_region_close(node->memory.region);
		node->memory.region = NULL;
		break;
	case VERB_DETACH_REGION:
		CHECK_OK(rmr_region_detach(node->memory.region));
		break;
	case VERB_OPEN_REGION:
		CHECK_OK(rmr_region_open(node->device, node->memory.base, node->memory.size,
					 rights_of(node, node->arg), &node->memory.region));
		break;
	case VERB_CLOSE_CONN:
		rmr_conn_close(conns[command->conn]);
		conns[command->conn] = NULL;
		break;
	case VERB_DROP:
		drop(node, command->conn);
		break;
	case VERB_ACCEPT:
		command->seed = (uint64_t)accept_one(node, node->arg);
		break;
	case VERB_QUIT:
		break;
	default:
		obey_memory(node, command);
	}
}

static void puppet_main(struct node *node)
{
	const struct side_options *options = node->arg;
	struct command command;
	int i;

	node_open(node, &options->queue);
	node_memory(node, options->kind, options->size, rights_of(node, options));
	accept_one(node, options);
	do {
		test_recv(node->pipe, TEST_CHILD, &command, sizeof(command));
		obey(node, &command);
		test_send(node->pipe, TEST_CHILD, &command, sizeof(command));
	} while (command.verb != VERB_QUIT);
	for (i = 0; i < MAX_CONNS; i++)
		rmr_conn_close(conns[i]);
	node->conn = NULL;
	node_close(node);
}

/* ------------------------------------------------------------------------------------------
 * The test's process
 */
static void tell(struct puppet *puppet, struct command command)
{
	test_send(&puppet->peer.pipe, TEST_PARENT, &command, sizeof(command));
}

static uint64_t answer(struct puppet *puppet)
{
	struct command command;

	test_recv(&puppet->peer.pipe, TEST_PARENT, &command, sizeof(command));
	return command.seed;
}

static uint64_t ask(struct puppet *puppet, struct command command)
{
	tell(puppet, command);
	return answer(puppet);
}

void puppet_start(struct puppet *puppet, const struct side_options *options)
{
	puppet->options = *options;
	if (puppet->options.size == 0)
		puppet->options.size = 64 * KIB;
	peer_start(&puppet->peer, puppet_main, &puppet->options);
}

void puppet_connect(struct puppet *puppet, struct node *node,
		    const struct rmr_conn_options *options)
{
	node_connect(node, &puppet->peer, options);
	node_import(node);
}

void side_open(struct node *node, const struct side_options *options)
{
	node_open(node, &options->queue);
	node_memory(node, options->kind, options->size ? options->size : 64 * KIB, options->rights);
}

void pair_open(struct puppet *puppet, struct node *node, const struct pair_options *options)
{
	static const struct pair_options defaults;

	options = options != NULL ? options : &defaults;
	*node = (struct node){0};
	puppet_start(puppet, &options->puppet);
	side_open(node, &options->test);
	puppet_connect(puppet, node, &options->test.conn);
}

int pair_connect(struct puppet *puppet, struct node *node)
{
	tell(puppet, (struct command){.verb = VERB_ACCEPT});
	puppet_connect(puppet, node, NULL);
	return (int)answer(puppet);
}

void puppet_quit(struct puppet *puppet)
{
	ask(puppet, (struct command){.verb = VERB_QUIT});
	peer_join(&puppet->peer);
}

void pair_close(struct puppet *puppet, struct node *node)
{
	puppet_quit(puppet);
	node_close(node);
}

void puppet_fill(struct puppet *puppet, size_t at, size_t length, uint64_t seed)
{
	ask(puppet, (struct command){.verb = VERB_FILL, .at = at, .length = length, .seed = seed});
}

void puppet_check(struct puppet *puppet, size_t at, size_t length, uint64_t seed)
{
	ask(puppet, (struct command){.verb = VERB_CHECK, .at = at, .length = length, .seed = seed});
}

void puppet_set(struct puppet *puppet, size_t at, size_t length, uint8_t byte)
{
	ask(puppet, (struct command){.verb = VERB_SET, .at = at, .length = length, .seed = byte});
}

void puppet_check_guard(struct puppet *puppet, size_t at, size_t length, uint8_t byte)
{
	ask(puppet,
	    (struct command){.verb = VERB_CHECK_GUARD, .at = at, .length = length, .seed = byte});
}

uint64_t puppet_load(struct puppet *puppet, size_t at)
{
	return ask(puppet, (struct command){.verb = VERB_LOAD, .at = at, .length = 8});
}

void puppet_store(struct puppet *puppet, size_t at, uint64_t value)
{
	ask(puppet, (struct command){.verb = VERB_STORE, .at = at, .length = 8, .seed = value});
}

void puppet_expect_disconnect(struct puppet *puppet, int conn)
{
	ask(puppet, (struct command){.verb = VERB_EXPECT, .conn = conn, .op = RMR_OP_DISCONNECT});
}

void puppet_expect_recv(struct puppet *puppet, int conn, size_t length, uint64_t seed)
{
	ask(puppet, (struct command){.verb = VERB_EXPECT,
				     .conn = conn,
				     .op = RMR_OP_RECV,
				     .length = length,
				     .seed = seed});
}

void puppet_expect_imm(struct puppet *puppet, int conn, uint32_t immediate, size_t length)
{
	ask(puppet, (struct command){.verb = VERB_EXPECT,
				     .conn = conn,
				     .op = RMR_OP_RECV_IMM,
				     .immediate = immediate,
				     .length = length});
}

void puppet_expect_silence(struct puppet *puppet, int milliseconds)
{
	ask(puppet, (struct command){.verb = VERB_SILENCE, .count = milliseconds});
}

void puppet_discard(struct puppet *puppet, int count)
{
	ask(puppet, (struct command){.verb = VERB_DISCARD, .count = count});
}

void puppet_send(struct puppet *puppet, int conn, size_t length, uint64_t seed)
{
	ask(puppet,
	    (struct command){.verb = VERB_SEND, .conn = conn, .length = length, .seed = seed});
}

void puppet_close_region(struct puppet *puppet)
{
	ask(puppet, (struct command){.verb = VERB_CLOSE_REGION});
}

void puppet_detach_region(struct puppet *puppet)
{
	ask(puppet, (struct command){.verb = VERB_DETACH_REGION});
}

void puppet_open_region(struct puppet *puppet)
{
	ask(puppet, (struct command){.verb = VERB_OPEN_REGION});
}

void puppet_close_conn(struct puppet *puppet, int conn)
{
	ask(puppet, (struct command){.verb = VERB_CLOSE_CONN, .conn = conn});
}

void puppet_drop(struct puppet *puppet, int conn)
{
	ask(puppet, (struct command){.verb = VERB_DROP, .conn = conn});
}

void puppet_start_flood(struct puppet *puppet, int count, size_t length, uint64_t seed)
{
	tell(puppet,
	     (struct command){.verb = VERB_FLOOD, .count = count, .length = length, .seed = seed});
}

void puppet_start_sink(struct puppet *puppet, int count, size_t length, uint64_t seed)
{
	tell(puppet,
	     (struct command){.verb = VERB_SINK, .count = count, .length = length, .seed = seed});
}

void puppet_finish(struct puppet *puppet)
{
	answer(puppet);
}
