/* What a server says of its options before and after it is created, and keys that change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"

static struct subject subject;

static void check(const kv_server_options_t *options, int status, const char *text)
{
	kv_server_options_t with_memory = *options;

	if (!with_memory.memory)
		with_memory.memory = 2 << 20;
	CHECK_EQ(kv_server_check(&with_memory), status);
	if (text)
		CHECK_CONTAINS(kv_server_error(), text);
}

static void test_check(void)
{
	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	CHECK_EQ(kv_server_check(NULL), KV_OK);
	check(&(kv_server_options_t){.address = "127.0.0.1"}, KV_OK, NULL);
	check(&(kv_server_options_t){.address = "localhost", .listen = "tcp"}, KV_OK, NULL);
	check(&(kv_server_options_t){.listen = "tcp://127.0.0.1:7,shm:name"}, KV_OK, NULL);
	/* 192.0.2.0/24 is for documentation: nobody has it. */
	check(&(kv_server_options_t){.address = "192.0.2.1"}, KV_INVALID, "192.0.2.1");
	check(&(kv_server_options_t){.listen = "tcp://192.0.2.1:7"}, KV_INVALID, "ip address");
	check(&(kv_server_options_t){.listen = "pigeon"}, KV_INVALID, "pigeon");
	check(&(kv_server_options_t){.port = 70000}, KV_INVALID, "65535");
	check(&(kv_server_options_t){.key_file = "/nowhere/at-all"}, KV_DENIED, "/nowhere/at-all");
	check(&(kv_server_options_t){.memory = (size_t)1 << 46}, KV_NO_MEMORY, "ask for less");
}

/* A server that runs does not make its own options wrong. */
static void test_check_while_it_runs(void)
{
	kv_server_options_t options = {.memory = 2 << 20, .address = "127.0.0.1", .port = -1};

	subject_start(&subject, NULL);
	options.port = kv_server_port(subject.server);
	CHECK_EQ(kv_server_check(&options), KV_OK);
	subject_stop(&subject);
}

static void test_not_enough_memory(void)
{
	kv_server_options_t options = {.memory = (size_t)1 << 46, .listen = "shm"};
	kv_server_t *server = NULL;

	CHECK_EQ(kv_server_create(&options, &server), KV_NO_MEMORY);
	CHECK_CONTAINS(kv_server_error(), "this machine has");
}

static void test_adapters(void)
{
	/* More than fit a server, whatever machine this is. */
	check(&(kv_server_options_t){.adapters = 100}, KV_UNSUPPORTED, "100 adapters are wanted");
	check(&(kv_server_options_t){.adapters = 1, .listen = "shm,tcp"}, KV_INVALID, "has 0");
	check(&(kv_server_options_t){.adapters = 2, .device = "mlx5_0"}, KV_INVALID, "mlx5_0");
}

struct told {
	uint64_t calls, done, total;
	bool backwards;
	uint64_t give_up_at;
};

static bool take_progress(void *argument, const char *what, uint64_t done, uint64_t total)
{
	struct told *told = argument;

	CHECK_CONTAINS(what, "memory");
	told->backwards |= done < told->done || done > total;
	told->calls++;
	told->done = done;
	told->total = total;
	return done < told->give_up_at;
}

static void test_progress(void)
{
	struct told told = {.give_up_at = UINT64_MAX};
	kv_server_options_t options = {
		.memory = (size_t)96 << 20,
		.listen = "shm",
		.prefault = true,
		.progress = take_progress,
		.progress_argument = &told,
	};
	kv_server_t *server;

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	CHECK_EQ(kv_server_create(&options, &server), KV_OK);
	CHECK(told.calls >= 2);
	CHECK(!told.backwards);
	CHECK_EQ(told.total, (uint64_t)96 << 20);
	CHECK_EQ(told.done, told.total);
	CHECK_CONTAINS(kv_server_summary(server), "all touched");
	kv_server_destroy(server);
	/* The program has enough of it. */
	told = (struct told){.give_up_at = 1};
	CHECK_EQ(kv_server_create(&options, &server), KV_TIMEOUT);
	CHECK_CONTAINS(kv_server_error(), "given up");
	CHECK(told.done >= 1);
}

static void test_summary(void)
{
	kv_server_options_t options = {.memory = 2 << 20, .workers = 3, .reject = true};

	subject_start(&subject, &options);
	CHECK_CONTAINS(kv_server_summary(subject.server), "memory: 2MiB, when full: reject\n");
	CHECK_CONTAINS(kv_server_summary(subject.server), "pages: 512 ordinary ones of 4KiB\n");
	CHECK_CONTAINS(kv_server_summary(subject.server), "workers: 3 threads\n");
	CHECK_CONTAINS(kv_server_summary(subject.server), "access: everybody");
	subject_stop(&subject);
	options.key_file = subject_key_file('w');
	subject_start(&subject, &options);
	CHECK_CONTAINS(kv_server_summary(subject.server), "access: with the shared key\n");
	subject_stop(&subject);
}

/* They are had, or the summary tells how. */
static void test_huge_pages(void)
{
	kv_server_options_t options = {.memory = 4 << 20, .huge_pages = true};
	const char *text;

	subject_start(&subject, &options);
	text = kv_server_summary(subject.server);
	if (!strstr(text, "pages: 2 huge ones of 2MiB\n")) {
		CHECK_CONTAINS(text, "pages: 1024 ordinary ones of 4KiB; ");
		CHECK(strstr(text, "sysctl -w vm.nr_hugepages=") || strstr(text, "no huge ones") ||
		      strstr(text, "start again"));
	}
	subject_stop(&subject);
}

static int greet(const char *by, const char *key_file)
{
	struct raw raw;
	int answer;

	raw_connect(&raw, by, subject_address(&subject, by));
	answer = raw_greet(&raw, key_file, 0);
	raw_close(&raw);
	return answer;
}

static void new_keys(const char *by)
{
	kv_server_options_t options = {.key_file = subject_key_file('w')};
	struct raw raw;

	subject_start(&subject, &options);
	raw_enter(&raw, by, subject_address(&subject, by), subject_key_file('w'));
	CHECK_EQ(kv_server_read_keys(subject.server, "/nowhere/at-all", NULL), KV_DENIED);
	CHECK_EQ(kv_server_read_keys(subject.server, NULL, subject_key_file('r')), KV_INVALID);
	CHECK_EQ(greet(by, subject_key_file('w')), KV_OP_WELCOME);
	CHECK_EQ(kv_server_read_keys(subject.server, subject_key_file('n'), subject_key_file('r')),
		 KV_OK);
	CHECK_EQ(greet(by, subject_key_file('w')), KV_OP_REFUSE);
	CHECK_EQ(greet(by, subject_key_file('n')), KV_OP_WELCOME);
	CHECK_EQ(greet(by, subject_key_file('r')), KV_OP_WELCOME);
	/* The client that knew the old one is sent away, with a reason. */
	CHECK_EQ(raw_receive_end(&raw), KV_DENIED);
	CHECK_CONTAINS((const char *)raw.reply.value, "the key of this session was removed");
	raw_close(&raw);
	subject_stop(&subject);
}

/* A file of the keys of these files, and things that are no keys. */
static const char *join_keys(const char *one, const char *other)
{
	static char path[256];
	FILE *to, *from;
	char line[64];

	snprintf(path, sizeof(path), "%s/joined", test_tmpdir());
	to = fopen(path, "w");
	CHECK(to);
	CHECK_EQ(chmod(path, 0600), 0);
	fputs("# new and old\r\n\n", to);
	for (int i = 0; i < 2; i++) {
		from = fopen(i ? other : one, "r");
		CHECK(from && fgets(line, sizeof(line), from));
		fputs(line, to);
		fclose(from);
	}
	fclose(to);
	return path;
}

/* One key is replaced by another one, and nobody is interrupted who takes the new one in time. */
static void rotated_keys(const char *by)
{
	const char *old = subject_key_file('o'), *new = subject_key_file('n');
	const char *reads = subject_key_file('r');
	kv_server_options_t options = {.key_file = old, .read_key_file = reads};
	const char *address, *both;
	struct raw late, timely, reader;

	subject_start(&subject, &options);
	address = subject_address(&subject, by);
	raw_enter(&late, by, address, old);
	raw_enter(&reader, by, address, reads);
	both = join_keys(new, old);
	CHECK_EQ(kv_server_read_keys(subject.server, both, reads), KV_OK);
	raw_enter(&timely, by, address, both); /* by the first of the file */
	CHECK_EQ(greet(by, old), KV_OP_WELCOME);
	CHECK_EQ(raw_put(&late, "key", "late", 4), KV_OK);
	CHECK_EQ(kv_server_read_keys(subject.server, new, reads), KV_OK);
	CHECK_EQ(raw_receive_end(&late), KV_DENIED);
	CHECK_EQ(greet(by, old), KV_OP_REFUSE);
	CHECK_EQ(raw_put(&timely, "key", "timely", 6), KV_OK);
	CHECK_EQ(raw_get(&reader, "key", 10), KV_OK);
	/* The same key with another right is another one. */
	CHECK_EQ(kv_server_read_keys(subject.server, old, new), KV_OK);
	CHECK_EQ(raw_receive_end(&timely), KV_DENIED);
	CHECK_EQ(raw_receive_end(&reader), KV_DENIED);
	raw_close(&late);
	raw_close(&timely);
	raw_close(&reader);
	subject_stop(&subject);
}

/* From no key to one, and back. */
static void first_key(const char *by)
{
	struct raw raw;

	subject_start(&subject, NULL);
	raw_enter(&raw, by, subject_address(&subject, by), NULL);
	CHECK_EQ(kv_server_read_keys(subject.server, NULL, NULL), KV_OK);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	CHECK_EQ(kv_server_read_keys(subject.server, subject_key_file('w'), NULL), KV_OK);
	CHECK_EQ(raw_receive_end(&raw), KV_DENIED);
	CHECK_CONTAINS((const char *)raw.reply.value, "needs a key now");
	raw_close(&raw);
	raw_enter(&raw, by, subject_address(&subject, by), subject_key_file('w'));
	CHECK_EQ(kv_server_read_keys(subject.server, NULL, NULL), KV_OK);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	raw_close(&raw);
	subject_stop(&subject);
}

static void test_new_keys(void)
{
	subject_for_each(new_keys);
	subject_for_each(rotated_keys);
	subject_for_each(first_key);
}

static const struct test tests[] = {
	{"check", test_check},
	{"check_while_it_runs", test_check_while_it_runs},
	{"not_enough_memory", test_not_enough_memory},
	{"adapters", test_adapters},
	{"progress", test_progress},
	{"summary", test_summary},
	{"huge_pages", test_huge_pages},
	{"new_keys", test_new_keys},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_check_test", tests, TEST_COUNT(tests));
}
