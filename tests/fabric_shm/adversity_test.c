/*
 * Bad luck and bad neighbours on shm: forks, threads, peers that stop half-way, that are stuck,
 * that use up what is shared. Each test stands for a fault that was once there.
 *
 * Both ends are in this process, in two queues, unless one of them is an impostor.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/shm/internal.h"
#include "fabric_shm/impostor.h"
#include "harness/test.h"

static struct rmr_device *device;
static struct rmr_queue *servers, *clients;
static struct rmr_listener *listener;
static char path[SHM_PATH_SIZE];

static void set_up(const struct rmr_listener_options *options,
		   const struct rmr_queue_options *queue_options)
{
	snprintf(path, sizeof(path), "%s/s.sock", test_tmpdir());
	CHECK_OK(rmr_device_open("shm", NULL, &device));
	CHECK_OK(rmr_queue_open(device, queue_options, &servers));
	CHECK_OK(rmr_queue_open(device, NULL, &clients));
	CHECK_OK(rmr_listener_open(device, path, options, &listener));
}

static void *call(void *out)
{
	CHECK_OK(rmr_connect(clients, path, 5000, NULL, (struct rmr_conn **)out));
	return NULL;
}

static void connect_pair(struct rmr_conn **server, struct rmr_conn **client)
{
	struct rmr_request *request;
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, call, client), 0);
	CHECK_OK(rmr_listener_next(listener, 5000, &request));
	CHECK_OK(rmr_accept(request, servers, NULL, server));
	pthread_join(thread, NULL);
}

static struct rmr_conn *let_in(struct impostor *impostor)
{
	struct rmr_request *request;
	struct rmr_conn *conn;

	CHECK(impostor_open(impostor, path));
	CHECK(impostor_introduce(impostor));
	CHECK_OK(rmr_listener_next(listener, 5000, &request));
	CHECK_OK(rmr_accept(request, servers, NULL, &conn));
	return conn;
}

static void clean_up(void)
{
	while (!list_is_empty(&servers->conns))
		rmr_conn_close(list_first_entry(&servers->conns, struct rmr_conn, link));
	while (!list_is_empty(&clients->conns))
		rmr_conn_close(list_first_entry(&clients->conns, struct rmr_conn, link));
	rmr_listener_close(listener);
	rmr_queue_close(servers);
	rmr_queue_close(clients);
	rmr_device_close(device);
}

static void say_hi(struct rmr_conn *conn)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = "hi",
				.length = 2};

	CHECK_EQ(rmr_post(conn, &work, 1), 1);
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int connect_silently(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	strcpy(name.sun_path, path);
	CHECK_EQ(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	return fd;
}

/* More silent callers than may wait: the listener sleeps, and hears the one that speaks. */
static void test_listener_with_too_many_callers(void)
{
	struct rmr_request *request;
	struct impostor impostor;
	double before;

	set_up(&(struct rmr_listener_options){.backlog = 4}, NULL);
	for (int i = 0; i < 6; i++) {
		connect_silently();
		CHECK_STATUS(rmr_listener_next(listener, 0, &request), RMR_TIMEOUT);
	}
	before = cpu_seconds();
	CHECK_STATUS(rmr_listener_next(listener, 500, &request), RMR_TIMEOUT);
	CHECK(cpu_seconds() - before < 0.1 * TEST_TIME_FACTOR);
	let_in(&impostor);
	impostor_close(&impostor);
	clean_up();
}

/* Silent callers, many times more than may wait, hold up honest ones for a while only. */
static void test_silent_callers_give_way(void)
{
	struct rmr_conn *server, *client;
	int silent[24];

	set_up(&(struct rmr_listener_options){.backlog = 4, .handshake_timeout_ms = 1000}, NULL);
	for (int i = 0; i < 24; i++)
		silent[i] = connect_silently();
	connect_pair(&server, &client);
	say_hi(client);
	for (int i = 0; i < 24; i++)
		close(silent[i]);
	clean_up();
}

/* No descriptor left to accept with: the listener sleeps, and goes on when there is one. */
static void test_listener_without_descriptors(void)
{
	struct rmr_request *request;
	struct rlimit limit;
	int spare = -1, fd;
	double before;

	set_up(NULL, NULL);
	connect_silently();
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = 64;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while ((fd = dup(0)) >= 0)
		spare = fd;
	before = cpu_seconds();
	CHECK_STATUS(rmr_listener_next(listener, 500, &request), RMR_TIMEOUT);
	CHECK(cpu_seconds() - before < 0.1 * TEST_TIME_FACTOR);
	CHECK_EQ(((struct shm_listener *)listener)->caller_count, 0);
	close(spare);
	CHECK_STATUS(rmr_listener_next(listener, 500, &request), RMR_TIMEOUT);
	CHECK_EQ(((struct shm_listener *)listener)->caller_count, 1);
	clean_up();
}

static void *take_callers(void *unused)
{
	struct rmr_request *request;

	for (int i = 0; i < 100; i++) {
		if (rmr_listener_next(listener, 5, &request) == RMR_OK)
			rmr_reject(request, "not today");
	}
	return unused;
}

static void test_listener_used_by_threads(void)
{
	pthread_t threads[3];

	set_up(NULL, NULL);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, take_callers, NULL), 0);
	for (int i = 0; i < 200; i++) {
		struct impostor impostor;

		CHECK(impostor_open(&impostor, path));
		if (i % 2)
			impostor_introduce(&impostor);
		impostor_close(&impostor);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	clean_up();
}

/* A quiet connection's wake-up is read by another call: the message is found all the same. */
static void test_wake_read_by_another_call(void)
{
	enum { CONNS = 12 };
	struct rmr_conn *server[CONNS], *client[CONNS];
	struct rmr_descriptor descriptor;
	struct rmr_completion completion;
	struct rmr_region *region;
	struct rmr_remote *remote;
	struct rmr_arena *arena;
	int cold = -1;

	set_up(NULL, NULL);
	for (int i = 0; i < CONNS; i++)
		connect_pair(&server[i], &client[i]);
	for (int i = 0; i < 20000; i++)
		CHECK_EQ(rmr_poll(servers, &completion, 1), 0);
	for (int i = 0; i < CONNS; i++) {
		if (((struct shm_conn *)server[i])->heat == SHM_COLD)
			cold = i;
	}
	CHECK(cold >= 0);
	CHECK_OK(rmr_arena_open(4096, 0, &arena));
	CHECK_OK(rmr_region_open(device, rmr_arena_base(arena), 4096, RMR_READ, &region));
	CHECK_OK(rmr_region_export(region, client[cold], &descriptor));
	say_hi(client[cold]);
	CHECK_OK(rmr_remote_open(server[cold], &descriptor, &remote));
	CHECK_EQ(rmr_wait(servers, &completion, 1, 2000), 1);
	CHECK_EQ(completion.op, RMR_OP_RECV);
	rmr_recv_release(servers, completion.data);
	rmr_region_close(region);
	rmr_arena_close(arena);
	clean_up();
}

static void sleep_long(void *unused)
{
	(void)unused;
	sleep(30);
}

/* A child of this process holds all our descriptors: the peer learns of a close all the same, and
 * nothing is left of the connection here. */
static void test_close_while_a_child_lives(void)
{
	struct rmr_completion completion;
	struct rmr_conn *server, *client;
	struct rmr_descriptor descriptor;
	struct rmr_region *region;
	char memory[64];
	pid_t child;

	set_up(NULL, NULL);
	connect_pair(&server, &client);
	child = test_spawn(sleep_long, NULL);
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), RMR_READ, &region));
	rmr_conn_close(server);
	CHECK_EQ(rmr_wait(clients, &completion, 1, 2000), 1);
	CHECK_EQ(completion.op, RMR_OP_DISCONNECT);
	CHECK_STATUS(rmr_region_export(region, client, &descriptor), RMR_DISCONNECTED);
	CHECK_EQ(rmr_wait(servers, &completion, 1, 50), 0);
	test_kill(child);
	rmr_region_close(region);
	clean_up();
}

static void client_with_a_child(void *unused)
{
	struct rmr_device *mine;
	struct rmr_queue *queue;
	struct rmr_conn *conn;

	(void)unused;
	CHECK_OK(rmr_device_open("shm", NULL, &mine));
	CHECK_OK(rmr_queue_open(mine, NULL, &queue));
	CHECK_OK(rmr_connect(queue, path, 5000, NULL, &conn));
	if (fork() == 0) {
		sleep(20);
		_exit(0);
	}
	pause();
}

/* The peer is killed, but a child of it still holds the socket: its death is noticed. */
static void test_death_while_a_child_lives(void)
{
	struct rmr_completion completion;
	struct rmr_request *request;
	struct rmr_conn *conn;
	pid_t pid;

	set_up(NULL, NULL);
	pid = test_spawn(client_with_a_child, NULL);
	CHECK_OK(rmr_listener_next(listener, 5000, &request));
	CHECK_OK(rmr_accept(request, servers, NULL, &conn));
	CHECK_EQ(rmr_wait(servers, &completion, 1, 300), 0);
	test_kill(pid);
	CHECK_EQ(rmr_wait(servers, &completion, 1, 5000), 1);
	CHECK_EQ(completion.op, RMR_OP_DISCONNECT);
	clean_up();
}

/* Peers that claim to be in our memory for ever are waited for once, and lose their connection: if
 * the region was theirs to use. */
static void test_stuck_peers(void)
{
	enum { PEERS = 5 };
	struct impostor impostors[PEERS], other;
	struct rmr_conn *conns[PEERS], *bystander;
	struct rmr_descriptor descriptor;
	struct rmr_completion completion;
	struct rmr_region *region;
	char memory[64];

	set_up(NULL, NULL);
	for (int i = 0; i < PEERS; i++) {
		conns[i] = let_in(&impostors[i]);
		atomic_store(&impostors[i].segment->active, 1);
	}
	bystander = let_in(&other);
	atomic_store(&other.segment->active, 1);
	for (int i = 0; i < 20; i++) {
		CHECK_OK(rmr_region_open(device, memory, sizeof(memory), RMR_READ, &region));
		for (int k = 0; k < PEERS; k++)
			CHECK_OK(rmr_region_export(region, conns[k], &descriptor));
		rmr_region_close(region);
	}
	for (int i = 0; i < PEERS; i++) {
		CHECK_EQ(rmr_wait(servers, &completion, 1, 10000), 1);
		CHECK_EQ(completion.op, RMR_OP_DISCONNECT);
		CHECK_EQ(completion.status, RMR_PROTOCOL);
		CHECK(completion.conn != bystander);
	}
	CHECK_EQ(rmr_poll(servers, &completion, 1), 0);
	say_hi(bystander);
	for (int i = 0; i < PEERS; i++)
		impostor_close(&impostors[i]);
	impostor_close(&other);
	clean_up();
}

/* Who cannot wait asks. */
static void test_revoke(void)
{
	struct rmr_descriptor descriptor;
	struct rmr_completion completion;
	struct rmr_region *region;
	struct impostor impostor;
	struct rmr_conn *conn;
	char memory[64];

	set_up(NULL, NULL);
	conn = let_in(&impostor);
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), RMR_READ, &region));
	CHECK_OK(rmr_region_export(region, conn, &descriptor));
	atomic_store(&impostor.segment->active, 1);
	for (int i = 0; i < 1000; i++)
		CHECK_STATUS(rmr_region_revoke(region), RMR_AGAIN);
	usleep(150000); /* longer than a close would wait: asking costs it nothing */
	CHECK_STATUS(rmr_region_revoke(region), RMR_AGAIN);
	atomic_store(&impostor.segment->active, 0);
	CHECK_OK(rmr_region_revoke(region));
	/* It has left; that it is inside something else by now does not matter. */
	atomic_store(&impostor.segment->active, 1);
	rmr_region_close(region);
	CHECK_EQ(rmr_poll(servers, &completion, 1), 0);
	say_hi(conn);
	impostor_close(&impostor);
	clean_up();
}

struct slow_close {
	struct rmr_region *region;
	atomic_bool done;
};

static void *close_slowly(void *argument)
{
	struct slow_close *slow = argument;

	rmr_region_close(slow->region);
	atomic_store(&slow->done, true);
	return NULL;
}

/* While one thread waits for a stopped peer, the device's other operations go on. One try in which
 * another region was opened, granted and closed meanwhile shows it; on a busy machine a try may
 * come too late. */
static void test_close_holds_up_nobody(void)
{
	bool seen = false;

	set_up(NULL, NULL);
	for (int i = 0; i < 50 && !seen; i++) {
		struct rmr_descriptor descriptor;
		struct impostor stopped, active;
		struct rmr_conn *conn, *other;
		struct slow_close slow = {0};
		struct rmr_region *region;
		static char memory[64];
		pthread_t thread;

		conn = let_in(&stopped);
		other = let_in(&active);
		CHECK_OK(rmr_region_open(device, memory, 64, RMR_READ, &slow.region));
		CHECK_OK(rmr_region_export(slow.region, conn, &descriptor));
		atomic_store(&stopped.segment->active, 1);
		CHECK_EQ(pthread_create(&thread, NULL, close_slowly, &slow), 0);
		while (!atomic_load(&slow.region->closed))
			sched_yield();
		CHECK_OK(rmr_region_open(device, memory, 64, RMR_READ, &region));
		CHECK_OK(rmr_region_export(region, other, &descriptor));
		rmr_region_close(region);
		seen = !atomic_load(&slow.done);
		pthread_join(thread, NULL);
		rmr_conn_close(conn);
		rmr_conn_close(other);
		impostor_close(&stopped);
		impostor_close(&active);
	}
	CHECK(seen);
	clean_up();
}

/* Connects, begins an access if it is told to, and is stopped within it. */
static void client_that_stops(void *inside)
{
	struct rmr_device *mine;
	struct rmr_queue *queue;
	struct rmr_conn *conn;

	CHECK_OK(rmr_device_open("shm", NULL, &mine));
	CHECK_OK(rmr_queue_open(mine, NULL, &queue));
	CHECK_OK(rmr_connect(queue, path, 5000, NULL, &conn));
	atomic_store(&((struct shm_conn *)conn)->mine->active, inside != NULL);
	raise(SIGSTOP);
	pause();
}

/* A peer that was stopped inside our memory lingers until its process is dead; one that was stopped
 * elsewhere does not. */
static void check_lingering(bool inside)
{
	struct pollfd process = {.fd = -1, .events = POLLIN};
	struct rmr_descriptor descriptor;
	struct rmr_request *request;
	struct rmr_region *region;
	struct rmr_conn *conn;
	static char memory[64];
	pid_t pid;
	int status;

	set_up(NULL, NULL);
	pid = test_spawn(client_that_stops, inside ? memory : NULL);
	CHECK_OK(rmr_listener_next(listener, 5000, &request));
	CHECK_OK(rmr_accept(request, servers, NULL, &conn));
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), RMR_READ, &region));
	CHECK_OK(rmr_region_export(region, conn, &descriptor));
	CHECK(!rmr_conn_lingers(conn, &process.fd));
	rmr_region_close(region);
	CHECK_EQ(rmr_conn_lingers(conn, &process.fd), inside);
	rmr_conn_close(conn);
	if (inside) {
		CHECK(process.fd >= 0);
		CHECK_EQ(poll(&process, 1, 0), 0);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(poll(&process, 1, 5000), 1);
		close(process.fd);
	}
	test_kill(pid);
	clean_up();
}

static void test_lingering_peers(void)
{
	check_lingering(false);
	check_lingering(true);
}

/* Half a message takes no slot from others, whoever sends how many of them. */
static void test_half_messages(void)
{
	enum { SLOTS = 4 };
	struct rmr_completion completion;
	struct impostor impostors[SLOTS];
	struct rmr_conn *server, *client;

	set_up(NULL, &(struct rmr_queue_options){.recv_slots = SLOTS});
	connect_pair(&server, &client);
	for (int i = 0; i < SLOTS; i++) {
		struct ring_writer writer = {0};

		let_in(&impostors[i]);
		writer.cells = impostors[i].segment->ring;
		ring_publish(&writer, RING_MESSAGE, RING_FIRST, 100, "x", 1);
	}
	CHECK_EQ(rmr_wait(servers, &completion, 1, 50), 0);
	say_hi(client);
	CHECK_EQ(rmr_wait(servers, &completion, 1, 2000), 1);
	CHECK_EQ(completion.op, RMR_OP_RECV);
	CHECK(completion.conn == server);
	for (int i = 0; i < SLOTS; i++)
		impostor_close(&impostors[i]);
	clean_up();
}

/* A descriptor is good for the connection that it was exported to, and no other. */
static void test_descriptor_of_another_connection(void)
{
	struct rmr_conn *server[2], *client[2];
	struct rmr_region *plain, *first, *second;
	struct rmr_descriptor descriptor;
	struct rmr_remote *remote;
	struct rmr_arena *arena;
	char memory[64];

	set_up(NULL, NULL);
	connect_pair(&server[0], &client[0]);
	connect_pair(&server[1], &client[1]);
	CHECK_OK(rmr_region_open(device, memory, sizeof(memory), RMR_READ, &plain));
	CHECK_OK(rmr_region_export(plain, server[0], &descriptor));
	CHECK_STATUS(rmr_remote_open(client[1], &descriptor, &remote), RMR_ACCESS);
	CHECK_OK(rmr_remote_open(client[0], &descriptor, &remote));
	/* Not even when it has another region of the same arena. */
	CHECK_OK(rmr_arena_open(8192, 0, &arena));
	CHECK_OK(rmr_region_open(device, rmr_arena_base(arena), 64, RMR_READ, &first));
	CHECK_OK(rmr_region_open(device, (char *)rmr_arena_base(arena) + 4096, 64, RMR_READ,
				 &second));
	CHECK_OK(rmr_region_export(first, server[1], &descriptor));
	CHECK_OK(rmr_region_export(second, server[0], &descriptor));
	CHECK_STATUS(rmr_remote_open(client[1], &descriptor, &remote), RMR_ACCESS);
	rmr_region_close(plain);
	rmr_region_close(first);
	rmr_region_close(second);
	rmr_arena_close(arena);
	clean_up();
}

/* Arenas that come and go: any number of them, and what was closed does not stay mapped. */
static void test_many_arenas_in_turn(void)
{
	struct rmr_conn *server, *client;
	struct rmr_completion completion;
	int mappings;

	set_up(NULL, NULL);
	connect_pair(&server, &client);
	mappings = test_mapping_count();
	for (uint32_t i = 0; i < 2 * SHM_MAX_ARENAS; i++) {
		struct rmr_descriptor descriptor;
		struct rmr_region *region;
		struct rmr_remote *remote;
		struct rmr_arena *arena;

		CHECK_OK(rmr_arena_open(4096, 0, &arena));
		CHECK_OK(rmr_region_open(device, rmr_arena_base(arena), 64, RMR_READ, &region));
		CHECK_OK(rmr_region_export(region, server, &descriptor));
		CHECK_OK(rmr_remote_open(client, &descriptor, &remote));
		CHECK_EQ(rmr_poll(clients, &completion, 1), 0);
		rmr_remote_close(remote);
		rmr_region_close(region);
		rmr_arena_close(arena);
	}
	CHECK(test_mapping_count() < mappings + 20);
	clean_up();
}

struct long_write {
	struct rmr_conn *conn;
	struct rmr_work work;
	uint64_t ended_ns;
};

static void *write_long(void *argument)
{
	struct long_write *write = argument;

	CHECK_EQ(rmr_post(write->conn, &write->work, 1), 1);
	write->ended_ns = clock_now_ns();
	return NULL;
}

/* A region is closed in the middle of a long WRITE: that ends before the close returns. */
static void test_close_under_a_long_write(void)
{
	const size_t length = (size_t)256 << 20;
	struct rmr_conn *server, *client;
	struct rmr_descriptor descriptor;
	struct rmr_region *target, *source;
	struct rmr_completion completion;
	struct rmr_remote *remote;
	struct rmr_arena *arena;
	struct long_write write;
	pthread_t thread;
	uint8_t *memory;

	set_up(NULL, NULL);
	connect_pair(&server, &client);
	memory = malloc(length);
	CHECK(memory != NULL);
	CHECK_OK(rmr_arena_open(length, RMR_ARENA_PEERS_WRITE, &arena));
	CHECK_OK(rmr_region_open(device, rmr_arena_base(arena), length, RMR_WRITE, &target));
	CHECK_OK(rmr_region_export(target, server, &descriptor));
	CHECK_OK(rmr_remote_open(client, &descriptor, &remote));
	CHECK_OK(rmr_region_open(device, memory, length, 0, &source));
	write.conn = client;
	write.work = (struct rmr_work){.op = RMR_OP_WRITE,
				       .source = memory,
				       .length = length,
				       .region = source,
				       .remote = remote};
	memset(memory, 0xab, length);
	CHECK_EQ(pthread_create(&thread, NULL, write_long, &write), 0);
	while (*(volatile uint8_t *)rmr_arena_base(arena) != 0xab)
		sched_yield();
	rmr_region_close(target);
	/* From here on the memory is ours alone. */
	memset(rmr_arena_base(arena), 0, length);
	pthread_join(thread, NULL);
	for (size_t i = 0; i < length; i += 512)
		CHECK_EQ(((uint8_t *)rmr_arena_base(arena))[i], 0);
	CHECK_EQ(rmr_wait(clients, &completion, 1, 2000), 1);
	CHECK_EQ(completion.op, RMR_OP_WRITE);
	CHECK_EQ(completion.status, RMR_ACCESS);
	rmr_region_close(source);
	rmr_arena_close(arena);
	clean_up();
	free(memory);
}

static const struct test tests[] = {
	{"listener_with_too_many_callers", test_listener_with_too_many_callers},
	{"silent_callers_give_way", test_silent_callers_give_way},
	{"listener_without_descriptors", test_listener_without_descriptors},
	{"listener_used_by_threads", test_listener_used_by_threads},
	{"wake_read_by_another_call", test_wake_read_by_another_call},
	{"close_while_a_child_lives", test_close_while_a_child_lives},
	{"death_while_a_child_lives", test_death_while_a_child_lives},
	{"stuck_peers", test_stuck_peers},
	{"revoke", test_revoke},
	{"close_holds_up_nobody", test_close_holds_up_nobody},
	{"lingering_peers", test_lingering_peers},
	{"half_messages", test_half_messages},
	{"descriptor_of_another_connection", test_descriptor_of_another_connection},
	{"many_arenas_in_turn", test_many_arenas_in_turn},
	{"close_under_a_long_write", test_close_under_a_long_write},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "shm_adversity", tests, TEST_COUNT(tests));
}
