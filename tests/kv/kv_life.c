/*
 * Mapped memory outlives its server: whether clients notice in time that it is gone, and whether a
 * successor gives them that time. By shm; nothing here depends on how fast the machine is: what is
 * slow only makes it easier to be right.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fixture.h"
#include "kv/protocol.h"

#define KEY(text) text, sizeof(text) - 1
#define MS_NS	  UINT64_C(1000000)

static void need_shm(void)
{
	if (strcmp(setup.device, "shm") != 0)
		TEST_SKIP("by shm alone");
}

/* The server's parent stops it when the other end of the pipe says so, and lets it go on when it
 * says so again. */
static void hold_server(const struct server *server, struct test_pipe *pipe)
{
	char byte;

	test_recv(pipe, TEST_PARENT, &byte, 1);
	stop_process(server->pid);
	test_send(pipe, TEST_PARENT, &byte, 1);
	test_recv(pipe, TEST_PARENT, &byte, 1);
	kill(server->pid, SIGCONT);
}

static int get(kv_client_t *client, const char *key, char value[16])
{
	size_t length = 15;
	int status = kv_client_get(client, key, strlen(key), value, &length);

	value[status == KV_OK ? length : 0] = 0;
	return status;
}

/* On a busy machine more time than KV_SILENCE_MS may pass within a get, which is asked for then. */
static void get_until_mapped(kv_client_t *client, char value[16])
{
	do
		CHECK_KV(client, get(client, "k", value), KV_OK);
	while (kv_client_last_path(client) != KV_PATH_MAPPED);
}

struct watch {
	struct server server;
	struct test_pipe pipe;
};

/* A get that begins later than KV_SILENCE_MS after the last sign of life is not answered from
 * memory; when the server goes on, gets are again. */
static void watch_silence(void *argument)
{
	struct watch *watch = argument;
	kv_client_options_t options = {.timeout_ms = 1000};
	kv_client_t *client = client_open(&watch->server, &options);
	uint64_t stopped_ns, begun_ns;
	char value[16];

	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	get_until_mapped(client, value);
	test_send(&watch->pipe, TEST_CHILD, "", 1);
	test_recv(&watch->pipe, TEST_CHILD, value, 1);
	stopped_ns = clock_now_ns();
	do {
		begun_ns = clock_now_ns();
		if (get(client, "k", value) == KV_OK &&
		    begun_ns - stopped_ns > (KV_SILENCE_MS + 1) * MS_NS)
			TEST_FAIL("answered from the memory of a server that is silent for %u ms",
				  (unsigned)((begun_ns - stopped_ns) / MS_NS));
	} while (begun_ns - stopped_ns < 3 * KV_SILENCE_MS * MS_NS);
	test_send(&watch->pipe, TEST_CHILD, "", 1);
	while (get(client, "k", value) != KV_OK || kv_client_last_path(client) != KV_PATH_MAPPED)
		;
	kv_client_destroy(client);
}

static void check_silence(struct watch *watch)
{
	pid_t reader;

	test_pipe_open(&watch->pipe);
	reader = test_spawn(watch_silence, watch);
	hold_server(&watch->server, &watch->pipe);
	test_wait(reader);
	server_stop(&watch->server);
}

static void test_silence(void)
{
	struct watch watch;

	need_shm();
	server_start(&watch.server, NULL);
	check_silence(&watch);
}

/* ------------------------------------------------------------------------------------------
 * A copy that stands still in the middle
 */

static struct {
	pid_t server;
	char *page;
	unsigned faults;
} stall;

/* The copy touches the caller's memory: meanwhile the server stops, and time passes. */
static void on_fault(int number, siginfo_t *info, void *context)
{
	struct timespec pause = {.tv_nsec = 2 * KV_SILENCE_MS * (long)MS_NS};
	int status;

	(void)number;
	(void)context;
	if ((char *)info->si_addr < stall.page || (char *)info->si_addr >= stall.page + 4096)
		_exit(99);
	stall.faults++;
	kill(stall.server, SIGSTOP);
	waitpid(stall.server, &status, WUNTRACED);
	nanosleep(&pause, NULL);
	mprotect(stall.page, 4096, PROT_READ | PROT_WRITE);
}

/* What was copied counts only if the server is known to have lived after the copy. */
static void test_silence_during_a_copy(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	kv_client_options_t options = {.timeout_ms = 100};
	struct server server;
	kv_client_t *client;
	size_t length = 4096;
	void *values[1];
	size_t key_length = 1;
	const void *key = "k";
	int status, batch_status;

	need_shm();
	server_start(&server, NULL);
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	stall.server = server.pid;
	stall.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stall.page != MAP_FAILED);
	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
	get_until_mapped(client, stall.page);
	mprotect(stall.page, 4096, PROT_NONE);
	length = 4096;
	status = kv_client_get(client, KEY("k"), stall.page, &length);
	CHECK_EQ(stall.faults, 1);
	CHECK_EQ(status, KV_TIMEOUT);
	/* The same for several at once. */
	kill(server.pid, SIGCONT);
	length = 4096;
	while (kv_client_get(client, KEY("k"), stall.page, &length) != KV_OK)
		length = 4096;
	mprotect(stall.page, 4096, PROT_NONE);
	values[0] = stall.page;
	length = 4096;
	CHECK_EQ(kv_client_batch_get(client, 1, &key, &key_length, values, &length, &batch_status),
		 KV_OK);
	CHECK_EQ(batch_status, KV_TIMEOUT);
	kill(server.pid, SIGCONT);
	kv_client_destroy(client);
	server_stop(&server);
}

/* ------------------------------------------------------------------------------------------
 * Successors
 */

/* Its first client is served when readers of a predecessor must have noticed. */
static void test_successor_waits(void)
{
	struct server server;
	kv_client_t *client;

	server_start(&server, NULL);
	for (int i = 0; i < 2; i++) {
		uint64_t begun_ns;

		if (i == 0)
			test_kill(server.pid);
		else
			server_stop(&server);
		begun_ns = clock_now_ns();
		server_restart(&server);
		client = client_open(&server, NULL);
		CHECK(clock_now_ns() - begun_ns >= KV_SUCCESSION_MS * MS_NS);
		kv_client_destroy(client);
	}
	server_stop(&server);
}

enum { READERS = 2, ROUNDS = 6 };

struct shared {
	_Atomic unsigned written; /* the round whose value was put, by the successor */
	_Atomic unsigned round;
	_Atomic uint64_t mapped;
	_Atomic bool stops;
};

static struct shared *shared;

/* Reads all the time. Once a put has succeeded no get that begins afterwards finds an older value,
 * wherever it comes from. */
static void read_on(void *argument)
{
	struct server *server = argument;
	kv_client_options_t options = {.timeout_ms = 1000};
	kv_client_t *client;

	/* The server may be killed just then. */
	while (client_try(server, &options, &client) != KV_OK)
		kv_client_destroy(client);
	while (!atomic_load(&shared->stops)) {
		unsigned written = atomic_load(&shared->written);
		char value[16];
		int status = get(client, "k", value);

		/* A server that was killed has lost what it had: then it is missing until it is
		 * put again. */
		if (status == KV_OK && (unsigned)atoi(value) < written)
			TEST_FAIL("%s after %u, by %s", value, written,
				  kv_path_name(kv_client_last_path(client)));
		if (status == KV_NOT_FOUND && atomic_load(&shared->round) == written)
			TEST_FAIL("lost after %u", written);
		if (status == KV_OK && kv_client_last_path(client) == KV_PATH_MAPPED)
			atomic_fetch_add(&shared->mapped, 1);
	}
	kv_client_destroy(client);
}

static void put_round(const struct server *server, unsigned round)
{
	kv_client_t *client = client_open(server, NULL);
	char value[16];

	snprintf(value, sizeof(value), "%u", round);
	CHECK_KV(client, kv_client_put(client, KEY("k"), value, strlen(value)), KV_OK);
	atomic_store(&shared->written, round);
	kv_client_destroy(client);
}

/* Killed again and again, with readers of its memory at work, and each time a successor that is
 * written to at once. */
static void test_successor_is_written_to(void)
{
	struct server server;
	pid_t readers[READERS];

	need_shm();
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	server_start(&server, NULL);
	atomic_store(&shared->round, 1);
	put_round(&server, 1);
	for (int i = 0; i < READERS; i++)
		readers[i] = test_spawn(read_on, &server);
	for (unsigned round = 2; round < ROUNDS; round++) {
		uint64_t before = atomic_load(&shared->mapped);

		while (atomic_load(&shared->mapped) < before + 100)
			test_sleep_ms(1);
		atomic_store(&shared->round, round);
		test_kill(server.pid);
		server_restart(&server);
		put_round(&server, round);
	}
	atomic_store(&shared->stops, true);
	for (int i = 0; i < READERS; i++)
		test_wait(readers[i]);
	server_stop(&server);
}

/* ------------------------------------------------------------------------------------------
 * Another clock
 */

static void expire_in_another_time(void *argument)
{
	struct server *server = argument;
	kv_put_options_t put = {.ttl_ms = 300};
	kv_client_t *client = client_open(server, NULL);
	uint64_t begun_ns = clock_now_ns();
	char value[16];
	int status;

	CHECK_KV(client, kv_client_put_with(client, KEY("k"), KEY("v"), &put, NULL), KV_OK);
	do
		status = get(client, "k", value);
	while (status == KV_OK && clock_now_ns() - begun_ns < 20000 * MS_NS);
	CHECK_EQ(status, KV_NOT_FOUND);
	/* The server counts whole milliseconds. */
	CHECK(clock_now_ns() - begun_ns >= 298 * MS_NS);
	/* One that does not expire is read as ever. */
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	get_until_mapped(client, value);
	kv_client_destroy(client);
}

/* Processes that begin from now on have a clock that is behind by so many seconds. */
static void set_clock_back(int seconds)
{
	char text[64];
	int fd, length = snprintf(text, sizeof(text), "monotonic -%d 0", seconds);

	if (unshare(CLONE_NEWTIME) != 0)
		TEST_SKIP("no time namespace: it takes root, and Linux 5.6");
	fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	if (write(fd, text, (size_t)length) != length)
		TEST_SKIP("the machine did not run for %d seconds yet", seconds);
	close(fd);
}

static void test_another_clock(void)
{
	struct server server;

	need_shm();
	server_start(&server, NULL);
	set_clock_back(60);
	test_wait(test_spawn(expire_in_another_time, &server));
	server_stop(&server);
}

static void test_silence_by_another_clock(void)
{
	struct watch watch;

	need_shm();
	server_start(&watch.server, NULL);
	set_clock_back(60);
	check_silence(&watch);
}

const struct test life_tests[] = {
	{"silence", test_silence},
	{"silence_during_a_copy", test_silence_during_a_copy},
	{"successor_waits", test_successor_waits},
	{"successor_is_written_to", test_successor_is_written_to},
	{"another_clock", test_another_clock},
	{"silence_by_another_clock", test_silence_by_another_clock},
	{0},
};
