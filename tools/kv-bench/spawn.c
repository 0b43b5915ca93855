/*
 * Servers that kv-bench starts itself, and ends with itself: a kv-server when there is none or
 * --spawn asks for it, Redis and memcached for --compare.
 *
 * Ours is a process forked from this one that runs the server's library; the others are programs,
 * each with a Unix socket in a directory that is removed at the end. All are pinned to the same
 * cores, have as many threads as those, and keep nothing on disk. They end when the parent dies
 * (PR_SET_PDEATHSIG), whatever it dies of.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <remora/control_server.h>
#include <remora/server.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench.h"
#include "common/flag_words.h"

#define MEBIBYTE      (UINT64_C(1) << 20)
#define LEAST_MEMORY  (256 * MEBIBYTE)
#define SPARE_MEMORY  (64 * MEBIBYTE)
#define ITEM_OVERHEAD 128
#define START_NS      UINT64_C(10000000000)
#define END_NS	      UINT64_C(5000000000)
#define STEP_NS	      5000000
#define ARGUMENTS_MAX 32
#define NUMBER_MAX    24
#define SERVER_WINDOW 64 /* the default of a server */

static pid_t pids[STORE_COUNT];
static char directory[PATH_MAX]; /* of the sockets and logs; "" when there is none */

/* What a server of our own says through its pipe. */
struct greeting {
	int port;		    /* 0: the message tells what went wrong */
	char grpc[ADDRESS_MAX / 2]; /* HOST:PORT of gRPC; "": it was not asked for */
	char message[512];
};

static void pause_a_little(void)
{
	const struct timespec step = {0, STEP_NS};

	nanosleep(&step, NULL);
}

/* Enough for all keys twice over, so that nothing is evicted; a fresh copy of a value may lie
 * beside the old one. But no more than half of what the machine has. */
static uint64_t memory_needed(const struct config *config)
{
	uint64_t item = config_largest_value(config) + config->key_size + ITEM_OVERHEAD;
	uint64_t memory = 2 * config->keys * item + SPARE_MEMORY;
	uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;

	if (config->spawn_memory)
		return config->spawn_memory;
	if (memory < LEAST_MEMORY)
		memory = LEAST_MEMORY;
	return memory > most ? most : memory;
}

static unsigned threads_of(const struct config *config)
{
	return config->server_cpu_count ? (unsigned)config->server_cpu_count : 0;
}

/* In a child that becomes a server. */
static void become_server(const struct config *config, pid_t parent)
{
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGINT, SIG_IGN); /* the parent's to take */
	signal(SIGTERM, SIG_DFL);
	if (getppid() != parent)
		_exit(BENCH_EXIT_FAILED);
	CPU_ZERO(&set);
	for (int i = 0; i < config->server_cpu_count; i++)
		CPU_SET(config->server_cpus[i], &set);
	if (config->server_cpu_count && sched_setaffinity(0, sizeof(set), &set))
		fprintf(stderr, "kv-bench: the servers cannot be pinned: %s\n", strerror(errno));
}

/* ------------------------------------------------------------------------------------------
 * Ours
 */

static bool wants_grpc(const struct config *config)
{
	for (int i = 1; i < config->contestant_count; i++)
		if (config->contestants[i].kind == STORE_GRPC)
			return true;
	return false;
}

/* The gRPC service beside it. NULL: not wanted, or the message tells what went wrong. */
static kv_control_server_t *serve_grpc(const struct config *config, kv_server_t *server,
				       struct greeting *greeting)
{
	kv_control_server_options_t options = {.address = "127.0.0.1:0"};
	kv_control_server_t *control;

	if (!wants_grpc(config))
		return NULL;
	if (kv_control_server_create(server, &options, &control) == KV_OK) {
		if (kv_control_server_start(control) == KV_OK) {
			snprintf(greeting->grpc, sizeof(greeting->grpc), "%s",
				 kv_control_server_address(control));
			return control;
		}
		kv_control_server_destroy(control);
	}
	snprintf(greeting->message, sizeof(greeting->message), "%s", kv_control_server_error());
	greeting->port = 0;
	return NULL;
}

__attribute__((noreturn)) static void serve(const struct config *config, int fd)
{
	const char *device = config->options.device ? config->options.device : "";
	bool is_far = !strncmp(device, "verbs", 5), is_ofi = !strncmp(device, "ofi", 3);
	kv_server_options_t options = {
		.listen = is_far   ? NULL
			  : is_ofi ? device
				   : "shm,tcp",
		.address = is_far ? NULL : "127.0.0.1",
		.port = -1,
		.memory = memory_needed(config),
		.workers = threads_of(config),
		.key_file = config->options.key_file,
		.window = config->options.window > SERVER_WINDOW ? config->options.window : 0,
	};
	struct greeting greeting = {0};
	kv_control_server_t *control = NULL;
	kv_server_t *server = NULL;
	sigset_t end;
	int number;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	if (kv_server_create(&options, &server) != KV_OK || kv_server_start(server) != KV_OK)
		snprintf(greeting.message, sizeof(greeting.message), "%s", kv_server_error());
	else
		greeting.port = kv_server_port(server);
	if (greeting.port)
		control = serve_grpc(config, server, &greeting);
	if (pipe_write(fd, &greeting, sizeof(greeting)) && greeting.port)
		sigwait(&end, &number);
	kv_control_server_destroy(control);
	kv_server_destroy(server);
	_exit(greeting.port ? BENCH_EXIT_OK : BENCH_EXIT_FAILED);
}

static enum rmr_status spawn_ours(struct config *config)
{
	struct greeting greeting = {0};
	pid_t parent = getpid();
	bool has_spoken;
	int fds[2];

	if (pipe(fds))
		return error_errno(RMR_SYSTEM, errno, "pipe");
	fflush(NULL);
	pids[STORE_KV] = fork();
	if (pids[STORE_KV] == 0) {
		close(fds[0]);
		become_server(config, parent);
		serve(config, fds[1]);
	}
	close(fds[1]);
	has_spoken = pids[STORE_KV] > 0 && pipe_read(fds[0], &greeting, sizeof(greeting));
	close(fds[0]);
	if (!has_spoken)
		return error_set(RMR_SYSTEM, "a server of our own ended before it listened");
	if (!greeting.port)
		return error_set(RMR_SYSTEM, "a server of our own: %s", greeting.message);
	config->port = greeting.port;
	for (int i = 1; i < config->contestant_count; i++)
		if (config->contestants[i].kind == STORE_GRPC)
			snprintf(config->contestants[i].address, ADDRESS_MAX, "http://%s",
				 greeting.grpc);
	return RMR_OK;
}

/* Looks for a server where none was named. Without one, one is spawned, which is said. A server
 * that is there and refuses us is a failure: another one must not be measured in its place. */
static enum rmr_status look_around(struct config *config)
{
	kv_client_options_t options = config->options;
	enum rmr_status status = RMR_OK;
	kv_client_t *client;
	int found;

	options.connect_timeout_ms = 1000;
	client = kv_client_create_with(CONN_MODE_AUTO, &options);
	if (!client)
		return error_set(RMR_NO_MEMORY, "a client");
	found = kv_client_connect(client, NULL, config->port);
	config->spawn = found == KV_DISCONNECTED;
	if (config->spawn)
		fprintf(stderr,
			"kv-bench: no server reached at port %d: starting one for this run (-u or "
			"-p name another): %s\n",
			config->port, flag_words(kv_client_error(client)));
	else if (found != KV_OK)
		status = error_set(RMR_REFUSED,
				   "the server at port %d: %s: %s; --spawn starts another for this "
				   "run",
				   config->port, kv_strerror(found),
				   flag_words(kv_client_error(client)));
	kv_client_destroy(client);
	return status;
}

/* For people: which server it is. */
static void name_server(struct config *config)
{
	const char *address = config->contestants[0].address;
	bool is_whole = strchr(address, ':') != NULL; /* a URL, or HOST:PORT */

	if (config->spawn)
		snprintf(config->server, sizeof(config->server), "a server of its own");
	else if (is_whole)
		snprintf(config->server, sizeof(config->server), "%s", address);
	else
		snprintf(config->server, sizeof(config->server), "%s:%d",
			 *address ? address : "localhost", config->port);
}

/* ------------------------------------------------------------------------------------------
 * Redis and memcached
 */

const char *spawn_home(void)
{
	static char home[PATH_MAX / 2];
	ssize_t length = readlink("/proc/self/exe", home, sizeof(home) - 1);

	if (length < 0)
		length = 0;
	home[length] = '\0';
	for (int up = 0; up < 2 && strrchr(home, '/'); up++)
		*strrchr(home, '/') = '\0';
	return home;
}

bool spawn_find(const char *name, char *path)
{
	const char *search = getenv("PATH");

	while (search && *search) {
		int part = (int)strcspn(search, ":");

		snprintf(path, PATH_MAX, "%.*s/%s", part, search, name);
		if (!access(path, X_OK))
			return true;
		search += part + (search[part] == ':');
	}
	return false;
}

/* In the PATH, or where `scripts/setup bench` unpacks it: in servers/ beside bin/, or one higher
 * for a build of sanitizers. */
static bool find_program(const char *name, char path[PATH_MAX])
{
	const char *wanted = getenv("REMORA_SERVERS_DIR"), *home = spawn_home();
	char places[3][PATH_MAX] = {""};

	snprintf(places[0], PATH_MAX, "%s/usr/bin/%s", wanted ? wanted : "", name);
	snprintf(places[1], PATH_MAX, "%s/servers/usr/bin/%s", home, name);
	snprintf(places[2], PATH_MAX, "%s/../servers/usr/bin/%s", home, name);
	for (int i = wanted ? 0 : 1; i < 3; i++) {
		snprintf(path, PATH_MAX, "%s", places[i]);
		if (!access(path, X_OK))
			return true;
	}
	return spawn_find(name, path);
}

static enum rmr_status make_directory(void)
{
	const char *base = getenv("TMPDIR");

	if (*directory)
		return RMR_OK;
	snprintf(directory, sizeof(directory), "%s/kv-bench-XXXXXX", base && *base ? base : "/tmp");
	if (mkdtemp(directory))
		return RMR_OK;
	directory[0] = '\0';
	return error_errno(RMR_SYSTEM, errno, "a directory in %s", base && *base ? base : "/tmp");
}

static bool accepts(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool accepted;

	if (fd < 0 || strlen(socket_path) >= sizeof(address.sun_path)) {
		close(fd);
		return false;
	}
	strcpy(address.sun_path, socket_path);
	accepted = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return accepted;
}

__attribute__((noreturn)) static void become_program(const char *program, const char **arguments,
						     const char *name)
{
	char log[PATH_MAX + 32];
	int fd, nothing = open("/dev/null", O_RDONLY);

	snprintf(log, sizeof(log), "%s/%s.log", directory, name);
	fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 ||
	    chdir(directory))
		_exit(BENCH_EXIT_FAILED);
	execv(program, (char *const *)arguments);
	_exit(BENCH_EXIT_FAILED);
}

/* The last line of a log, into the message. */
static enum rmr_status does_not_start(const char *name)
{
	char path[PATH_MAX + 32], line[256], last[256] = "it says nothing";
	FILE *log;

	snprintf(path, sizeof(path), "%s/%s.log", directory, name);
	log = fopen(path, "r");
	while (log && fgets(line, sizeof(line), log)) {
		line[strcspn(line, "\n")] = '\0';
		if (*line)
			memcpy(last, line, sizeof(last));
	}
	if (log)
		fclose(log);
	return error_set(RMR_SYSTEM, "%s does not start: %s", name, last);
}

static enum rmr_status spawn_program(const struct config *config, struct contestant *contestant,
				     const char *program, const char **arguments)
{
	const char *name = store_names[contestant->kind];
	uint64_t end = clock_now_ns() + START_NS;
	pid_t parent = getpid(), pid;
	char path[PATH_MAX];

	if (!find_program(program, path))
		return error_set(RMR_UNSUPPORTED,
				 "--compare %s: %s is not there; `scripts/setup bench` fetches it, "
				 "or apt-get install %s",
				 name, program, program);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		become_server(config, parent);
		become_program(path, arguments, name);
	}
	if (pid < 0)
		return error_errno(RMR_SYSTEM, errno, "fork");
	pids[contestant->kind] = pid;
	while (!accepts(contestant->address)) {
		if (waitpid(pid, NULL, WNOHANG) == pid) {
			pids[contestant->kind] = 0;
			return does_not_start(name);
		}
		if (crew_is_interrupted() || clock_now_ns() > end)
			return does_not_start(name);
		pause_a_little();
	}
	return RMR_OK;
}

static enum rmr_status spawn_redis(const struct config *config, struct contestant *contestant)
{
	const char *arguments[] = {"redis-server",
				   "--port",
				   "0",
				   "--unixsocket",
				   contestant->address,
				   "--save",
				   "",
				   "--appendonly",
				   "no",
				   "--daemonize",
				   "no",
				   NULL};

	return spawn_program(config, contestant, "redis-server", arguments);
}

static enum rmr_status spawn_memcached(const struct config *config, struct contestant *contestant)
{
	uint64_t item = 2 * config_largest_value(config);
	char memory[NUMBER_MAX], threads[NUMBER_MAX], largest[NUMBER_MAX];
	const char *arguments[ARGUMENTS_MAX] = {
		"memcached", "-s", contestant->address, "-m", memory, "-t", threads, "-I", largest};

	/* It refuses to run as root unless it is told that this is meant. */
	if (geteuid() == 0) {
		arguments[9] = "-u";
		arguments[10] = "root";
	}
	if (item < MEBIBYTE)
		item = MEBIBYTE;
	snprintf(memory, sizeof(memory), "%llu",
		 (unsigned long long)(memory_needed(config) / MEBIBYTE));
	snprintf(threads, sizeof(threads), "%u", threads_of(config) ? threads_of(config) : 1);
	snprintf(largest, sizeof(largest), "%llu", (unsigned long long)item);
	return spawn_program(config, contestant, "memcached", arguments);
}

enum rmr_status spawn_servers(struct config *config)
{
	enum rmr_status status = RMR_OK;

	if (config->is_implicit && !config->spawn)
		status = look_around(config);
	if (status == RMR_OK)
		status = plan_keys(config);
	name_server(config);
	if (status == RMR_OK && config->spawn)
		status = spawn_ours(config);
	for (int i = 1; status == RMR_OK && i < config->contestant_count; i++) {
		struct contestant *contestant = &config->contestants[i];

		if (contestant->kind == STORE_GRPC)
			continue; /* the server of our own has it */
		status = make_directory();
		if (status != RMR_OK)
			break;
		if (snprintf(contestant->address, sizeof(contestant->address), "%s/%s.sock",
			     directory, store_names[contestant->kind]) >= ADDRESS_MAX)
			return error_set(RMR_TOO_LONG, "TMPDIR is too long for a Unix socket");
		status = contestant->kind == STORE_REDIS ? spawn_redis(config, contestant)
							 : spawn_memcached(config, contestant);
	}
	return status;
}

static void end_one(pid_t pid)
{
	uint64_t end = clock_now_ns() + END_NS;

	kill(pid, SIGTERM);
	while (clock_now_ns() < end) {
		if (waitpid(pid, NULL, WNOHANG))
			return;
		pause_a_little();
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void spawn_end(void)
{
	for (int i = 0; i < STORE_COUNT; i++) {
		char path[PATH_MAX + 32];

		if (pids[i] > 0)
			end_one(pids[i]);
		pids[i] = 0;
		if (!*directory)
			continue;
		snprintf(path, sizeof(path), "%s/%s.sock", directory, store_names[i]);
		unlink(path);
		snprintf(path, sizeof(path), "%s/%s.log", directory, store_names[i]);
		unlink(path);
	}
	if (*directory)
		rmdir(directory);
	directory[0] = '\0';
}
