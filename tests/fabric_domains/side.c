/* See side.h. */
#include "side.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIZE_MIN (8 * MIB)

struct setup setup;

/* ------------------------------------------------------------------------------------------
 * The other process
 */

static void server_main(void *arg)
{
	struct server *server = arg;

	test_pipe_take(&server->pipe, TEST_CHILD);
	server->role(server);
}

void server_start(struct server *server, void (*role)(struct server *server), int domains)
{
	server->role = role;
	server->domains = domains;
	server->address[0] = '\0';
	test_pipe_open(&server->pipe);
	server->pid = test_spawn(server_main, server);
	test_pipe_take(&server->pipe, TEST_PARENT);
}

void server_join(struct server *server)
{
	test_wait(server->pid);
	test_pipe_close(&server->pipe);
}

void server_kill(struct server *server)
{
	test_kill(server->pid);
	test_pipe_close(&server->pipe);
}

void server_tell(struct server *server, const char *address)
{
	snprintf(server->address, sizeof(server->address), "%s", address);
	test_send(&server->pipe, TEST_CHILD, server->address, sizeof(server->address));
}

const char *server_address(struct server *server)
{
	if (server->address[0] == '\0')
		test_recv(&server->pipe, TEST_PARENT, server->address, sizeof(server->address));
	return server->address;
}

const char *fresh_address(int index, char address[128])
{
	static unsigned count;
	const char *given = setup.addresses[index % setup.count];

	if (given)
		snprintf(address, 128, "%s", given);
	else if (strstr(setup.devices[index % setup.count], "shm"))
		snprintf(address, 128, "%s/d%d.%u", test_tmpdir(), getpid(), count++);
	else
		snprintf(address, 128, "127.0.0.1:0");
	return address;
}

/* ------------------------------------------------------------------------------------------
 * What a process has open
 */

void side_open(struct side *side, int count)
{
	struct rmr_domains_options options = {.queue = {.recv_slots = 32, .recv_size = 2048}};
	const char *names[RMR_DOMAINS_MAX];

	*side = (struct side){.count = count, .size = 2 * setup.large};
	if (side->size < SIZE_MIN)
		side->size = SIZE_MIN;
	for (int i = 0; i < count; i++)
		names[i] = setup.devices[i % setup.count];
	CHECK_OK(rmr_domains_open(names, count, &options, &side->domains));
	CHECK_OK(rmr_arena_open(side->size, RMR_ARENA_PEERS_WRITE, &side->arena));
	side->memory = rmr_arena_base(side->arena);
	CHECK_OK(rmr_domains_region_open(side->domains, side->memory, side->size,
					 RMR_READ | RMR_WRITE, &side->region));
}

void side_close(struct side *side)
{
	rmr_link_remote_close(side->remote);
	rmr_link_close(side->link);
	rmr_domains_listener_close(side->listener);
	rmr_domains_region_close(side->region);
	rmr_domains_close(side->domains);
	rmr_arena_close(side->arena);
}

void side_listen(struct side *side, const struct rmr_domains_listener_options *options)
{
	char buffers[RMR_DOMAINS_MAX][128];
	const char *addresses[RMR_DOMAINS_MAX];

	for (int i = 0; i < side->count; i++)
		addresses[i] = fresh_address(i, buffers[i]);
	CHECK_OK(rmr_domains_listen(side->domains, addresses, options, &side->listener));
}

void side_accept(struct side *side, const struct rmr_link_options *options)
{
	struct rmr_link_request *request;

	CHECK_OK(rmr_domains_listener_next(side->listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_link_accept(request, options, &side->link));
}

void side_export(struct side *side)
{
	struct rmr_link_descriptor descriptor;

	CHECK_OK(rmr_link_export(side->link, side->region, &descriptor));
	memcpy(side->memory, &descriptor, sizeof(descriptor)); /* too long for inline */
	struct rmr_link_work send =
		side_work(side, RMR_OP_SEND, 0, sizeof(struct rmr_link_descriptor), 0);
	side_do(side, &send);
}

void side_import(struct side *side)
{
	side_recv(side, &side->descriptor, sizeof(side->descriptor));
	CHECK_OK(rmr_link_remote_open(side->link, &side->descriptor, &side->remote));
}

void side_connect(struct side *side, struct server *server, const struct rmr_link_options *options)
{
	struct rmr_link_options own = {.stripe = STRIPE};

	CHECK_OK(rmr_link_connect(side->domains, server_address(server), PATIENCE_MS,
				  options ? options : &own, &side->link));
	side_import(side);
}

/* Takes the index-th of those that were put aside. */
static struct rmr_link_event take_aside(struct side *side, int index)
{
	struct rmr_link_event event = side->aside[index];

	side->aside_count--;
	memmove(&side->aside[index], &side->aside[index + 1],
		(size_t)(side->aside_count - index) * sizeof(event));
	return event;
}

struct rmr_link_event side_next(struct side *side)
{
	struct rmr_link_event event;

	if (side->aside_count > 0)
		return take_aside(side, 0);
	if (rmr_domains_wait(side->domains, &event, 1, PATIENCE_MS) != 1)
		TEST_FAIL("no event came");
	return event;
}

/* The next message, or the next that is none. */
static struct rmr_link_event next_of_kind(struct side *side, bool message)
{
	for (int i = 0; i < side->aside_count; i++)
		if ((side->aside[i].op == RMR_OP_RECV) == message)
			return take_aside(side, i);
	for (;;) {
		struct rmr_link_event event;

		if (rmr_domains_wait(side->domains, &event, 1, PATIENCE_MS) != 1)
			TEST_FAIL("no event came");
		if ((event.op == RMR_OP_RECV) == message || event.op == RMR_OP_DISCONNECT)
			return event;
		CHECK(side->aside_count < (int)TEST_COUNT(side->aside));
		side->aside[side->aside_count++] = event;
	}
}

struct rmr_link_event side_expect(struct side *side, enum rmr_op op, enum rmr_status status)
{
	struct rmr_link_event event = next_of_kind(side, op == RMR_OP_RECV);

	if (event.op != op || event.status != status)
		TEST_FAIL("event of operation %d with %s, not %d with %s", (int)event.op,
			  rmr_status_text(event.status), (int)op, rmr_status_text(status));
	return event;
}

struct rmr_link_work side_work(struct side *side, enum rmr_op op, size_t at, size_t length,
			       uint64_t offset)
{
	return (struct rmr_link_work){
		.op = op,
		.local = side->memory + at,
		.length = length,
		.region = side->region,
		.remote = side->remote,
		.offset = offset,
	};
}

void side_do(struct side *side, const struct rmr_link_work *work)
{
	struct rmr_link_event event;

	CHECK_OK(rmr_link_post(side->link, work));
	event = side_expect(side, work->op, RMR_OK);
	CHECK(event.link == side->link);
	CHECK_EQ(event.cookie, work->cookie);
	CHECK_EQ(event.length, work->length);
}

void side_send(struct side *side, const void *data, size_t length)
{
	struct rmr_link_work send = {
		.op = RMR_OP_SEND,
		.flags = RMR_INLINE | RMR_UNSIGNALED,
		.source = data,
		.length = length,
	};

	CHECK_OK(rmr_link_post(side->link, &send));
}

void side_recv(struct side *side, void *data, size_t length)
{
	struct rmr_link_event event = side_expect(side, RMR_OP_RECV, RMR_OK);

	CHECK(event.link == side->link);
	CHECK_EQ(event.length, length);
	memcpy(data, event.data, length);
	rmr_domains_recv_release(side->domains, &event);
}

/* ------------------------------------------------------------------------------------------
 * The servant
 */
struct command {
	enum {
		FILL,
		VERIFY,
		CLOSE_REGION,
	} what;
	size_t at, length;
	uint64_t seed;
};

static void obey(struct side *side, const struct command *command)
{
	switch (command->what) {
	case FILL:
		pattern_fill(side->memory + command->at, command->length, command->seed);
		break;
	case VERIFY:
		pattern_check(side->memory + command->at, command->length, command->seed,
			      "what was written");
		break;
	case CLOSE_REGION:
		rmr_domains_region_close(side->region);
		side->region = NULL;
		break;
	}
}

void serve_link(struct side *side)
{
	side_export(side);
	for (;;) {
		struct rmr_link_event event = side_next(side);
		struct command command;

		if (event.op == RMR_OP_DISCONNECT)
			break;
		if (event.op == RMR_OP_SEND && event.status != RMR_OK)
			continue; /* the caller has the answer, and closed before we learned it */
		CHECK_EQ(event.op, RMR_OP_RECV);
		CHECK_EQ(event.length, sizeof(command));
		memcpy(&command, event.data, sizeof(command));
		rmr_domains_recv_release(side->domains, &event);
		obey(side, &command);
		side_send(side, &command, sizeof(command)); /* done */
	}
	rmr_link_close(side->link);
	side->link = NULL;
}

void servant(struct server *server)
{
	struct side side;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	side_accept(&side, NULL);
	serve_link(&side);
	side_close(&side);
}

static void command(struct side *side, struct command command)
{
	struct command done;

	side_send(side, &command, sizeof(command));
	side_recv(side, &done, sizeof(done));
	CHECK_EQ(done.seed, command.seed);
}

void servant_fill(struct side *side, size_t at, size_t length, uint64_t seed)
{
	command(side, (struct command){FILL, at, length, seed});
}

void servant_check(struct side *side, size_t at, size_t length, uint64_t seed)
{
	command(side, (struct command){VERIFY, at, length, seed});
}

void servant_close_region(struct side *side)
{
	command(side, (struct command){CLOSE_REGION, 0, 0, 0});
}
