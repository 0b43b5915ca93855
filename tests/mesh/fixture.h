/*
 * What every test of the mesh starts from: a crew of processes, each with a mesh of its own.
 *
 *	static void greet(struct member *member)		each process
 *	{
 *		member_open(member, NULL);
 *		member_connect(member);
 *		...
 *		UNTIL(member, member->seen[RMR_MESH_RECV] == 1);
 *		member_close(member);
 *	}
 *
 *	static void test_greeting(void)				the test
 *	{
 *		struct crew crew;
 *
 *		crew_start(&crew, 3, greet, NULL);
 *		crew_join(&crew);
 *	}
 *
 * The test itself is no part of the mesh: it leads, kills and starts the processes again. Every
 * wait ends by itself, at PATIENCE_MS or with the test's time.
 */
#ifndef TESTS_MESH_FIXTURE_H
#define TESTS_MESH_FIXTURE_H

#include <remora/fabric.h>
#include <remora/mesh.h>

#include "base/clock.h"
#include "harness/test.h"

#define PATIENCE_MS (10000 * (int)TEST_TIME_FACTOR)
#define KIB	    (1ul << 10)
#define MIB	    (1ul << 20)
#define CREW_MAX    64

/* What this run is about. */
struct fixture {
	const char *device;
	const char *host; /* NULL: shm, or an address of the loopback network of this test alone */
};
extern struct fixture fixture;

struct member;
typedef void member_role(struct member *member);

/* One process of a crew. In that process all of it is used, in the test only the upper part. */
struct member {
	int id, count;
	void *arg;
	const char *hosts;
	pid_t pid;
	member_role *role;
	struct test_pipe pipe;

	struct rmr_mesh *mesh;
	int thread;
	uint64_t seen[RMR_MESH_UP + 1]; /* events, by opcode; failed works are not counted here */
	uint64_t failed;		/* works */
	uint64_t from[CREW_MAX];	/* messages, by peer */
	struct rmr_mesh_event last;	/* its data is not valid any more */
	void (*on_event)(struct member *member, const struct rmr_mesh_event *event);
	void *state; /* of the test's own */
};

struct crew {
	int count;
	char hosts[CREW_MAX * 128];
	struct member members[CREW_MAX];
};

/* A list of hosts that nobody else uses. */
void fixture_hosts(char *hosts, size_t size, int count);

void crew_make(struct crew *crew, int count);
/* Starts one process; again, if it had ended. */
void crew_spawn(struct crew *crew, int id, member_role *role, void *arg);
void crew_start(struct crew *crew, int count, member_role *role, void *arg);
void crew_join_one(struct crew *crew, int id);
void crew_join(struct crew *crew);
void crew_kill(struct crew *crew, int id);
/* Lets all go on that wait in member_meet. */
void crew_meet(struct crew *crew);

/* Options may be NULL; hosts, id, device, callback and user are filled in. */
void member_open(struct member *member, const struct rmr_mesh_options *options);
enum rmr_status member_try_open(struct member *member, const struct rmr_mesh_options *options);
void member_connect(struct member *member);
void member_close(struct member *member);
/* Waits until all processes of the crew are here. */
void member_meet(struct member *member);
/* Waits for an event or two, and fails the test when its time is over; what says what for. */
void member_wait(struct member *member, uint64_t deadline_ns, const char *what);
/* Posts, and waits for room if there is none. */
void member_send(struct member *member, int peer, const void *data, size_t size,
		 uint32_t immediate);

/* Polls until something is so; what was posted leaves first. */
#define UNTIL(member, condition)                                                                   \
	do {                                                                                       \
		rmr_mesh_flush_all((member)->mesh);                                                \
		uint64_t until_ns = clock_deadline_ns(PATIENCE_MS);                                \
		while (!(condition))                                                               \
			member_wait(member, until_ns, #condition);                                 \
	} while (0)

/* Bytes that only this seed makes. */
void pattern_fill(void *data, size_t length, uint64_t seed);
void pattern_check(const void *data, size_t length, uint64_t seed);

extern const struct test basic_tests[];
extern const struct test connect_tests[];
extern const struct test traffic_tests[];
extern const struct test memory_tests[];
extern const struct test death_tests[];
extern const struct test hostile_tests[];
extern const struct test many_tests[];

#endif
