/*
 * How clients and servers choose an adapter: connection modes, the five calls, run_server(), and
 * the flags -S and -d of the programs.
 *
 *	kv_modes_test guest KV_SERVER KV_CLIENT		in the lab's guest
 *
 * Elsewhere, without these words, there is no adapter, and everything is skipped.
 */
#include <dirent.h>
#include <remora/kv.h>
#include <remora/server.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/test.h"

#define HOST	    "10.77.0.1"
#define LONG_LENGTH ((size_t)24 << 20)

static const char *server_program, *client_program;

static void need_guest(void)
{
	if (!server_program)
		TEST_SKIP("no adapter: this runs in the lab's guest");
	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
}

/* A server in this process, by both ways of verbs and nothing else. */
static kv_server_t *start_server(bool by_socket)
{
	const kv_server_options_t options = {.memory = (size_t)64 << 20,
					     .port = -1,
					     .address = HOST,
					     .listen = "verbs:rxe0",
					     .socket_mode = by_socket,
					     .workers = 1};
	kv_server_t *server;

	if (kv_server_create(&options, &server) != KV_OK || kv_server_start(server) != KV_OK)
		TEST_FAIL("%s", kv_server_error());
	return server;
}

static void use_client(kv_client_t *client, int connected)
{
	char value[16];
	size_t length = sizeof(value);

	if (connected != KV_OK)
		TEST_FAIL("%d: %s", connected, kv_client_error(client));
	CHECK_CONTAINS(kv_client_transport(client), "verbs");
	CHECK_EQ(kv_client_put(client, "key", 3, "value", 5), KV_OK);
	CHECK_EQ(kv_client_get(client, "key", 3, value, &length), KV_OK);
	CHECK_EQ(length, 5);
	CHECK_MEM(value, "value", 5);
	kv_client_destroy(client);
}

static void test_mode_cm(void)
{
	kv_client_t *client = kv_client_create(CONN_MODE_CM);
	kv_server_t *server;

	need_guest();
	server = start_server(false);
	use_client(client, kv_client_connect(client, HOST, kv_server_port(server)));
	kv_server_destroy(server);
}

static void test_mode_socket(void)
{
	static const char *const devices[] = {NULL, "rxe0"};
	kv_client_t *client = kv_client_create(CONN_MODE_SOCKET);
	kv_server_t *server;

	need_guest();
	server = start_server(true);
	use_client(client, kv_client_connect(client, HOST, kv_server_port(server)));
	for (unsigned i = 0; i < TEST_COUNT(devices); i++) {
		client = kv_client_create(CONN_MODE_SOCKET);
		use_client(client, kv_client_connect_socket(client, HOST, kv_server_port(server),
							    devices[i]));
	}
	kv_server_destroy(server);
}

static void test_five_calls(void)
{
	char url[64], *value, *found;
	kv_server_t *server;
	void *handle;

	need_guest();
	server = start_server(false);
	snprintf(url, sizeof(url), "verbs://" HOST ":%d", kv_server_port(server));
	value = malloc(LONG_LENGTH);
	CHECK(value != NULL);
	memset(value, 'a', LONG_LENGTH - 1);
	value[LONG_LENGTH / 2] = 'b';
	value[LONG_LENGTH - 1] = '\0';
	CHECK_EQ(kv_open(url, &handle), 0);
	CHECK_CONTAINS(kv_client_transport(handle), "verbs");
	CHECK_EQ(kv_set(handle, "key", value), 0);
	CHECK_EQ(kv_get(handle, "key", &found), 0);
	CHECK(strcmp(found, value) == 0);
	kv_release(found);
	CHECK_EQ(kv_get(handle, "no such key", &found), 1);
	CHECK_EQ(kv_close(handle), 0);
	kv_server_destroy(server);
	free(value);
}

static void serve(void *argument)
{
	(void)argument;
	CHECK_EQ(run_server(), 0);
}

/* Without a key it would serve this host alone, and not by verbs. */
static void make_key(void)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/key", test_tmpdir());
	file = fopen(path, "w");
	CHECK(file != NULL);
	fputs("a key of more than sixteen bytes\n", file);
	CHECK_EQ(fclose(file), 0);
	CHECK_EQ(chmod(path, 0600), 0);
	setenv("REMORA_KEY_FILE", path, 1);
}

/* By every way, verbs among them; when it ends no socket is left. */
static void test_run_server(void)
{
	kv_client_t *client;
	struct dirent *entry;
	DIR *directory;
	pid_t pid;
	int status;

	need_guest();
	make_key();
	pid = test_spawn(serve, NULL);
	do {
		test_sleep_ms(50);
		client = kv_client_create(CONN_MODE_CM);
		status = kv_client_connect(client, HOST, 0);
		if (status != KV_OK)
			kv_client_destroy(client);
	} while (status != KV_OK);
	use_client(client, status);
	kill(pid, SIGTERM);
	test_wait(pid);
	directory = opendir(test_tmpdir());
	CHECK(directory != NULL);
	while ((entry = readdir(directory)))
		if (strncmp(entry->d_name, "kv-", 3) == 0)
			TEST_FAIL("%s is left", entry->d_name);
	closedir(directory);
}

/* kv-server -S -d rxe0 and kv-client -S -d rxe0. */
static void test_programs(void)
{
	char command[512], output[256] = "";
	FILE *stream;
	pid_t pid;
	int code;

	need_guest();
	pid = fork();
	if (pid == 0) {
		execl(server_program, "kv-server", "-a", HOST, "-p", "12399", "-m", "64", "-S",
		      "-d", "rxe0", (char *)NULL);
		_exit(127);
	}
	snprintf(command, sizeof(command), "%s -a " HOST " -p 12399 -S -d rxe0 ping 2>&1",
		 client_program);
	while (system(command) != 0)
		test_sleep_ms(100);
	snprintf(command, sizeof(command),
		 "%s -a " HOST " -p 12399 -S -d rxe0 put key value > /dev/null && "
		 "%s -a " HOST " -p 12399 -S -d rxe0 get key",
		 client_program, client_program);
	stream = popen(command, "r");
	CHECK(stream != NULL);
	CHECK(fgets(output, sizeof(output), stream) != NULL);
	CHECK_EQ(pclose(stream), 0);
	CHECK_EQ(strncmp(output, "value", 5), 0);
	kill(pid, SIGTERM);
	CHECK_EQ(waitpid(pid, &code, 0), pid);
	CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static const struct test tests[] = {
	{"mode_cm", test_mode_cm},	 {"mode_socket", test_mode_socket},
	{"five_calls", test_five_calls}, {"run_server", test_run_server},
	{"programs", test_programs},
};

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "guest") == 0) {
		server_program = argv[2];
		client_program = argv[3];
		argv[3] = argv[0];
		argc -= 3;
		argv += 3;
	}
	return test_main(argc, argv, "kv_modes", tests, TEST_COUNT(tests));
}
