/* Crews of processes: see fixture.h. */
#include "fixture.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_PORT 7500
/* Threads of a process listen one after the other. */
#define PORTS_EACH 4

struct fixture fixture;

void fixture_hosts(char *hosts, size_t size, int count)
{
	static int lists;
	size_t length = 0;
	int port = FIRST_PORT + 300 * lists++;

	for (int i = 0; i < count; i++) {
		char name[128];

		if (strstr(fixture.device, "shm"))
			snprintf(name, sizeof(name), "%s/m%d.%d", test_tmpdir(), lists, i);
		else if (fixture.host)
			snprintf(name, sizeof(name), "%s:%d", fixture.host, port + PORTS_EACH * i);
		else /* all of 127.0.0.0/8 is this host: one address for each test */
			snprintf(name, sizeof(name), "127.%d.%d.%d:%d", 64 + (getpid() >> 14 & 127),
				 getpid() >> 7 & 127, 1 + (getpid() & 127), port + PORTS_EACH * i);
		length +=
			(size_t)snprintf(hosts + length, size - length, "%s%s", i ? "," : "", name);
		CHECK(length < size);
	}
}

void crew_make(struct crew *crew, int count)
{
	memset(crew, 0, sizeof(*crew));
	crew->count = count;
	fixture_hosts(crew->hosts, sizeof(crew->hosts), count);
}

static void member_main(void *arg)
{
	struct member *member = arg;

	test_pipe_take(&member->pipe, TEST_CHILD);
	member->role(member);
}

void crew_spawn(struct crew *crew, int id, member_role *role, void *arg)
{
	struct member *member = &crew->members[id];

	*member = (struct member){
		.id = id, .count = crew->count, .arg = arg, .hosts = crew->hosts, .role = role};
	test_pipe_open(&member->pipe);
	member->pid = test_spawn(member_main, member);
	test_pipe_take(&member->pipe, TEST_PARENT);
}

void crew_start(struct crew *crew, int count, member_role *role, void *arg)
{
	crew_make(crew, count);
	for (int i = 0; i < count; i++)
		crew_spawn(crew, i, role, arg);
}

void crew_join_one(struct crew *crew, int id)
{
	test_wait(crew->members[id].pid);
	test_pipe_close(&crew->members[id].pipe);
	crew->members[id].pid = 0;
}

void crew_join(struct crew *crew)
{
	for (int i = 0; i < crew->count; i++)
		if (crew->members[i].pid)
			crew_join_one(crew, i);
}

void crew_kill(struct crew *crew, int id)
{
	test_kill(crew->members[id].pid);
	test_pipe_close(&crew->members[id].pipe);
	crew->members[id].pid = 0;
}

/* The others may take as long as the test may. */
static void be_patient(const struct test_pipe *pipe, enum test_side side)
{
	struct pollfd fd = {.fd = pipe->fds[side], .events = POLLIN};

	(void)poll(&fd, 1, test_remaining_ms());
}

void crew_meet(struct crew *crew)
{
	for (int i = 0; i < crew->count; i++)
		if (crew->members[i].pid)
			be_patient(&crew->members[i].pipe, TEST_PARENT);
	for (int i = 0; i < crew->count; i++)
		if (crew->members[i].pid)
			test_await(&crew->members[i].pipe, TEST_PARENT);
	for (int i = 0; i < crew->count; i++)
		if (crew->members[i].pid)
			test_signal(&crew->members[i].pipe, TEST_PARENT);
}

/* ------------------------------------------------------------------------------------------
 * In a process of the crew
 */

static void count_event(struct rmr_mesh *mesh, const struct rmr_mesh_event *event)
{
	struct member *member = rmr_mesh_user(mesh);

	CHECK(event->opcode >= RMR_MESH_SEND && event->opcode <= RMR_MESH_UP);
	CHECK(event->peer >= 0 && event->peer < member->count && event->peer != member->id);
	CHECK((event->work > 0) == (event->opcode <= RMR_MESH_READ));
	if (event->opcode <= RMR_MESH_READ && event->status != RMR_OK)
		member->failed++;
	else
		member->seen[event->opcode]++;
	if (event->opcode == RMR_MESH_RECV)
		member->from[event->peer]++;
	member->last = *event;
	if (member->on_event)
		member->on_event(member, event);
}

enum rmr_status member_try_open(struct member *member, const struct rmr_mesh_options *options)
{
	struct rmr_mesh_options own = {0};

	if (options)
		own = *options;
	if (!own.hosts)
		own.hosts = member->hosts;
	own.id = member->id;
	own.thread = member->thread;
	own.device = fixture.device;
	own.callback = count_event;
	own.user = member;
	return rmr_mesh_open(&own, &member->mesh);
}

void member_open(struct member *member, const struct rmr_mesh_options *options)
{
	CHECK_OK(member_try_open(member, options));
}

void member_connect(struct member *member)
{
	CHECK_OK(rmr_mesh_connect(member->mesh, PATIENCE_MS));
}

void member_close(struct member *member)
{
	rmr_mesh_close(member->mesh);
	member->mesh = NULL;
}

void member_meet(struct member *member)
{
	test_signal(&member->pipe, TEST_CHILD);
	be_patient(&member->pipe, TEST_CHILD);
	test_await(&member->pipe, TEST_CHILD);
}

void member_wait(struct member *member, uint64_t deadline_ns, const char *what)
{
	if (clock_passed(deadline_ns))
		TEST_FAIL(
			"process %d waits in vain for: %s (%llu sent, %llu received, %llu failed)",
			member->id, what, (unsigned long long)member->seen[RMR_MESH_SEND],
			(unsigned long long)member->seen[RMR_MESH_RECV],
			(unsigned long long)member->failed);
	CHECK(rmr_mesh_wait(member->mesh, 200) >= 0);
}

void member_send(struct member *member, int peer, const void *data, size_t size, uint32_t immediate)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	int64_t work;

	while ((work = rmr_mesh_post_send(member->mesh, data, size, peer, immediate)) == RMR_AGAIN)
		member_wait(member, deadline_ns, "a slot");
	if (work <= 0)
		TEST_FAIL("%d to %d: %s", member->id, peer, rmr_error_message());
}

/* ------------------------------------------------------------------------------------------
 * Patterns
 */

static uint8_t pattern_byte(uint64_t seed, size_t at)
{
	uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + at / 8 * 0xbf58476d1ce4e5b9u;

	x ^= x >> 29;
	return (uint8_t)(x >> (at % 8 * 8));
}

void pattern_fill(void *data, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i++)
		((uint8_t *)data)[i] = pattern_byte(seed, i);
}

void pattern_check(const void *data, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i++)
		if (((const uint8_t *)data)[i] != pattern_byte(seed, i))
			TEST_FAIL("byte %zu of %zu is wrong (seed %llu)", i, length,
				  (unsigned long long)seed);
}
