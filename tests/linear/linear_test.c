/*
 * Linearizability of the real thing: a server in one process, clients in others, all at work on a
 * few hot keys, and a checker that looks at what they recorded.
 *
 * A run is many rounds with one server. A round has keys of its own, which are absent at first, and
 * client processes of its own; it ends after a quarter of a second, or when the history is full.
 * Then the history is checked. A history that is not legal is kept in $TMPDIR, for linear_replay.
 *
 * All choices come from TEST_SEED, which a failing test shows; what the scheduler does, does not.
 * REMORA_SOAK_SECONDS=N lets each run take N seconds instead of one.
 */
#include <inttypes.h>
#include <remora/fabric.h>
#include <remora/server.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "checker.h"
#include "workload.h"

#define CLIENTS		 4u
#define MAX_CLIENTS	 24u /* with those that take the place of the killed */
#define CAPACITY	 30000u
#define ROUND_MS	 250
#define OFI_FACTOR	 8
#define RUN_SECONDS	 1
#define PATIENCE_SECONDS 10

struct run {
	const char *device; /* "shm", "fault:tcp" ... */
	const char *plan;   /* of the clients' faults */
	kv_get_mode_t get_mode;
	bool is_async;
	bool kills;
	enum planted planted;
};

struct server {
	char listen[40];
	const char *host;
	const char *device, *url; /* for clients */
	struct test_pipe pipe;
	pid_t pid;
	int port;
};

struct driver {
	const struct run *run;
	struct server server;
	struct history *history;
	struct workload_figures *figures;
	struct workload loads[MAX_CLIENTS];
	struct test_rng rng;
	uint64_t round;
	uint64_t unknown, checked, check_ns;
	bool is_rejected;
};

/* ------------------------------------------------------------------------------------------
 * The server
 */

static void serve(void *context)
{
	struct server *me = context;
	kv_server_options_t options = {
		.listen = me->listen,
		.address = me->host,
		.port = me->port,
		.memory = 64 << 20,
		.reject = true,
		.workers = 2,
		.landing_size = 64 << 10,
	};
	kv_server_t *server;

	CHECK_EQ(setenv("REMORA_FAULT_PLAN", "", 1), 0);
	if (kv_server_create(&options, &server) != KV_OK || kv_server_start(server) != KV_OK)
		TEST_FAIL("server: %s", kv_server_error());
	me->port = kv_server_port(server);
	test_send(&me->pipe, TEST_CHILD, &me->port, sizeof(me->port));
	for (char byte; read(me->pipe.fds[TEST_CHILD], &byte, 1) < 0;)
		;
	kv_server_stop(server);
	kv_server_destroy(server);
}

static void start_server(struct server *server, const char *device)
{
	bool is_shm = strstr(device, "shm") != NULL;

	snprintf(server->listen, sizeof(server->listen), "%s%s", device, is_shm ? ":linear" : "");
	server->device = device;
	/* Adapters are there in the guests of make test-verbs. */
	server->host = strncmp(device, "verbs", 5) == 0 ? "10.77.0.1" : "127.0.0.1";
	server->url = is_shm ? "shm:linear" : server->host;
	server->port = strstr(device, "tcp") ? -1 : 12345;
	CHECK_EQ(setenv("REMORA_SHM_DIR", test_tmpdir(), 1), 0);
	test_pipe_open(&server->pipe);
	server->pid = test_spawn(serve, server);
	test_recv(&server->pipe, TEST_PARENT, &server->port, sizeof(server->port));
}

static void stop_server(struct server *server)
{
	test_signal(&server->pipe, TEST_PARENT);
	test_wait(server->pid);
	test_pipe_close(&server->pipe);
}

/* ------------------------------------------------------------------------------------------
 * A round
 */

static void describe_client(struct driver *driver, uint32_t process, uint64_t deadline_ns)
{
	const struct run *run = driver->run;
	struct workload *load = &driver->loads[process];

	*load = (struct workload){
		.history = driver->history,
		.figures = driver->figures,
		.port = driver->server.port,
		.server = driver->server.url,
		.device = driver->server.device,
		.fault_plan = run->plan,
		.get_mode = run->get_mode,
		.is_async = run->is_async,
		.planted = run->planted,
		.round = driver->round,
		.process = process,
		.deadline_ns = deadline_ns,
	};
}

/* Kills one client after the other, each at a random moment, and puts another in its place. */
static void kill_clients(struct driver *driver, pid_t pids[CLIENTS], uint64_t deadline_ns)
{
	for (uint32_t next = CLIENTS; next < MAX_CLIENTS && !clock_passed(deadline_ns); next++) {
		uint64_t victim = test_rng_below(&driver->rng, CLIENTS);

		usleep((useconds_t)test_rng_below(&driver->rng, ROUND_MS * 1000 / 10));
		test_kill(pids[victim]);
		describe_client(driver, next, deadline_ns);
		pids[victim] = test_spawn(workload_run, &driver->loads[next]);
	}
}

/* What earlier rounds left is in the way of none, but takes memory. */
static void sweep(void *context)
{
	struct driver *driver = context;
	kv_client_options_t options = {.device = driver->server.device};
	kv_client_t *client = kv_client_create_with(CONN_MODE_AUTO, &options);

	CHECK_EQ(setenv("REMORA_FAULT_PLAN", "", 1), 0);
	CHECK(client);
	if (kv_client_connect(client, driver->server.url, driver->server.port) != KV_OK ||
	    kv_client_flush(client) != KV_OK)
		TEST_FAIL("flush: %s", kv_client_error(client));
	kv_client_destroy(client);
}

static void keep_history(const struct driver *driver, char *path, size_t size)
{
	const char *directory = getenv("TMPDIR");

	snprintf(path, size, "%s/remora-linear-%d.history", directory ? directory : "/tmp",
		 (int)getpid());
	if (!history_save(driver->history, path))
		snprintf(path, size, "(it could not be saved)");
}

static void check_round(struct driver *driver)
{
	static struct checker_report report;
	uint64_t start = clock_now_ns();
	char path[300];

	checker_run(driver->history, NULL, &report);
	driver->check_ns += clock_now_ns() - start;
	driver->checked += report.operations;
	driver->unknown += report.unknown;
	if (report.verdict == CHECKER_OK)
		return;
	driver->is_rejected = report.verdict == CHECKER_VIOLATION;
	if (driver->is_rejected && driver->run->planted)
		return;
	keep_history(driver, path, sizeof(path));
	TEST_FAIL("round %" PRIu64 " is %s: key %" PRIu32 ": %s\nThe history is in %s",
		  driver->round, driver->is_rejected ? "not linearizable" : "not checked",
		  report.key, report.text, path);
}

static void run_round(struct driver *driver)
{
	/* By libfabric a client needs a good part of a second to begin, on a busy machine. */
	int factor = strncmp(driver->run->device, "ofi", 3) == 0 ? OFI_FACTOR : 1;
	uint64_t deadline_ns = clock_deadline_ns(factor * ROUND_MS * (int)TEST_TIME_FACTOR);
	pid_t pids[CLIENTS];

	history_clear(driver->history);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		describe_client(driver, i, deadline_ns);
		pids[i] = test_spawn(workload_run, &driver->loads[i]);
	}
	if (driver->run->kills)
		kill_clients(driver, pids, deadline_ns);
	for (uint32_t i = 0; i < CLIENTS; i++)
		test_wait(pids[i]);
	check_round(driver);
	test_wait(test_spawn(sweep, driver));
	driver->round++;
}

/* ------------------------------------------------------------------------------------------
 * A run
 */

static int soak_seconds(void)
{
	const char *text = getenv("REMORA_SOAK_SECONDS");

	return text && atoi(text) > 0 ? atoi(text) : 0;
}

static void print_figures(const struct driver *driver)
{
	const struct workload_figures *figures = driver->figures;

	printf("  %" PRIu64 " rounds, %" PRIu64 " operations, %" PRIu64 " unknown, %" PRIu64
	       " not done (%" PRIu64 " no memory); checked %.0f in a second\n ",
	       driver->round, driver->checked, driver->unknown, figures->nothing_done,
	       figures->no_memory, (double)driver->checked * 1e9 / (double)(driver->check_ns + 1));
	for (int i = 0; i < KV_PATH_COUNT; i++)
		if (figures->paths[i])
			printf(" %s %" PRIu64, kv_path_name((kv_path_t)i), figures->paths[i]);
	printf("; stale %" PRIu64 ", torn %" PRIu64 ", reconnects %" PRIu64 "\n",
	       figures->stale_locations, figures->torn_reads, figures->reconnects);
	if (figures->first_failure[0])
		printf("  not done: %s\n", figures->first_failure);
	fflush(stdout);
}

/* Was there something to check? */
static bool has_enough(const struct driver *driver)
{
	return driver->checked > 100 * driver->round;
}

static void run(const struct run *run)
{
	struct driver driver = {.run = run};
	int seconds = soak_seconds() ? soak_seconds() : RUN_SECONDS;
	uint64_t deadline_ns, latest_ns;

	test_rng_init(&driver.rng, 1);
	driver.history = history_create(MAX_CLIENTS, CAPACITY);
	driver.figures = mmap(NULL, sizeof(*driver.figures), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(driver.history && driver.figures != MAP_FAILED);
	start_server(&driver.server, run->device);
	/* One round at least, however long the server took to start. */
	deadline_ns = clock_deadline_ns(seconds * 1000);
	/* And more, on a machine that stood still for a while. */
	latest_ns = clock_deadline_ns((seconds + PATIENCE_SECONDS) * 1000);
	do
		run_round(&driver);
	while (!driver.is_rejected && !clock_passed(has_enough(&driver) ? deadline_ns : latest_ns));
	print_figures(&driver);
	stop_server(&driver.server);
	CHECK_EQ(driver.is_rejected, run->planted != PLANTED_NONE);
	CHECK(has_enough(&driver));
	CHECK(driver.figures->nothing_done < driver.checked / 2);
	CHECK_EQ(driver.figures->no_memory, 0);
	if (!run->plan && driver.figures->nothing_done)
		TEST_FAIL("%" PRIu64 " operations were not done, though nothing was in the way: %s",
			  driver.figures->nothing_done, driver.figures->first_failure);
	history_destroy(driver.history);
}

static void test_shm_auto(void)
{
	run(&(struct run){.device = "shm"});
}

static void test_shm_ask(void)
{
	run(&(struct run){.device = "shm", .get_mode = KV_GET_ASK});
}

static void test_shm_index(void)
{
	run(&(struct run){.device = "shm", .get_mode = KV_GET_INDEX});
}

static void test_shm_async(void)
{
	run(&(struct run){.device = "shm", .is_async = true});
}

static void test_shm_kills(void)
{
	run(&(struct run){.device = "shm", .kills = true});
}

static void test_tcp_auto(void)
{
	run(&(struct run){.device = "tcp"});
}

static void test_tcp_ask(void)
{
	run(&(struct run){.device = "tcp", .get_mode = KV_GET_ASK});
}

static void test_tcp_index(void)
{
	run(&(struct run){.device = "tcp", .get_mode = KV_GET_INDEX});
}

static void test_tcp_async(void)
{
	run(&(struct run){.device = "tcp", .is_async = true});
}

static void test_tcp_kills(void)
{
	run(&(struct run){.device = "tcp", .kills = true});
}

#define DELAYS "delay_us=300,delay_percent=20,reorder=1"
#define TEARS  "tear_percent=50,tear_us=50"
#define DROPS  "drop_ppm=3000"

static void test_fault_shm_delays(void)
{
	run(&(struct run){.device = "fault:shm", .plan = DELAYS});
}

static void test_fault_shm_drops(void)
{
	run(&(struct run){.device = "fault:shm", .plan = DROPS});
}

static void test_fault_shm_everything(void)
{
	run(&(struct run){.device = "fault:shm", .plan = DELAYS "," TEARS "," DROPS});
}

static void test_fault_tcp_delays(void)
{
	run(&(struct run){.device = "fault:tcp", .plan = DELAYS});
}

static void test_fault_tcp_tears(void)
{
	run(&(struct run){.device = "fault:tcp", .plan = TEARS, .get_mode = KV_GET_INDEX});
}

static void test_fault_tcp_drops(void)
{
	run(&(struct run){.device = "fault:tcp", .plan = DROPS});
}

static void test_fault_tcp_everything(void)
{
	run(&(struct run){.device = "fault:tcp", .plan = DELAYS "," TEARS "," DROPS});
}

static void test_fault_tcp_async(void)
{
	run(&(struct run){.device = "fault:tcp", .plan = DELAYS "," DROPS, .is_async = true});
}

static void need_verbs(void)
{
	struct rmr_device_entry entries[16];
	size_t count = rmr_device_list(entries, TEST_COUNT(entries));

	for (size_t i = 0; i < count && i < TEST_COUNT(entries); i++)
		if (entries[i].usable && strncmp(entries[i].name, "verbs", 5) == 0)
			return;
	TEST_SKIP("no RDMA adapter here; make test-verbs has some");
}

static void test_verbs_auto(void)
{
	need_verbs();
	run(&(struct run){.device = "verbs"});
}

static void test_verbs_index(void)
{
	need_verbs();
	run(&(struct run){.device = "verbs", .get_mode = KV_GET_INDEX});
}

static void test_verbs_kills(void)
{
	need_verbs();
	run(&(struct run){.device = "verbs", .kills = true});
}

/* By libfabric. Some 15 MiB a client, so that they are not many. */
static void need_ofi(void)
{
	struct rmr_device *device;

	setenv("FI_OFI_RXM_MSG_RX_SIZE", "32", 0);
	if (rmr_device_open("ofi:tcp", NULL, &device) != RMR_OK)
		TEST_SKIP("%s", rmr_error_message());
	rmr_device_close(device);
}

static void test_ofi_auto(void)
{
	need_ofi();
	run(&(struct run){.device = "ofi:tcp"});
}

static void test_ofi_index(void)
{
	need_ofi();
	run(&(struct run){.device = "ofi:tcp", .get_mode = KV_GET_INDEX});
}

static void test_ofi_kills(void)
{
	need_ofi();
	run(&(struct run){.device = "ofi:tcp", .kills = true});
}

static void test_planted_stale_get(void)
{
	run(&(struct run){.device = "shm", .planted = PLANTED_STALE_GET});
}

static void test_planted_lost_put(void)
{
	run(&(struct run){.device = "shm", .planted = PLANTED_LOST_PUT});
}

static void test_planted_double_incr(void)
{
	run(&(struct run){.device = "shm", .planted = PLANTED_DOUBLE_INCR});
}

static struct test tests[] = {
	{"shm_auto", test_shm_auto},
	{"shm_ask", test_shm_ask, TEST_SLOW},
	{"shm_index", test_shm_index, TEST_SLOW},
	{"shm_async", test_shm_async, TEST_SLOW},
	{"shm_kills", test_shm_kills, TEST_SLOW},
	{"tcp_auto", test_tcp_auto, TEST_SLOW},
	{"tcp_ask", test_tcp_ask, TEST_SLOW},
	{"tcp_index", test_tcp_index},
	{"tcp_async", test_tcp_async},
	{"tcp_kills", test_tcp_kills, TEST_SLOW},
	{"fault_shm_delays", test_fault_shm_delays, TEST_SLOW},
	{"fault_shm_drops", test_fault_shm_drops, TEST_SLOW},
	{"fault_shm_everything", test_fault_shm_everything, TEST_SLOW},
	{"fault_tcp_delays", test_fault_tcp_delays, TEST_SLOW},
	{"fault_tcp_tears", test_fault_tcp_tears, TEST_SLOW},
	{"fault_tcp_drops", test_fault_tcp_drops, TEST_SLOW},
	{"fault_tcp_everything", test_fault_tcp_everything},
	{"fault_tcp_async", test_fault_tcp_async, TEST_SLOW},
	{"verbs_auto", test_verbs_auto, TEST_SLOW},
	{"verbs_index", test_verbs_index, TEST_SLOW},
	{"verbs_kills", test_verbs_kills, TEST_SLOW},
	{"ofi_auto", test_ofi_auto, TEST_SLOW},
	{"ofi_index", test_ofi_index, TEST_SLOW},
	{"ofi_kills", test_ofi_kills, TEST_SLOW},
	{"planted_stale_get_is_found", test_planted_stale_get},
	{"planted_lost_put_is_found", test_planted_lost_put, TEST_SLOW},
	{"planted_double_incr_is_found", test_planted_double_incr, TEST_SLOW},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < TEST_COUNT(tests); i++)
		tests[i].timeout_s = TEST_DEFAULT_TIMEOUT_S + (unsigned)soak_seconds();
	return test_main(argc, argv, "linear", tests, TEST_COUNT(tests));
}
