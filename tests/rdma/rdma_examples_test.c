/* The examples of the easy library do what their comments say, on every transport that is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "harness/test.h"

static const char *const addresses[] = {"", "tcp://127.0.0.1", "shm://127.0.0.1"};

/* Runs an example and returns all that it printed, errors included. */
static const char *run(const char *command_line)
{
	static char output[65536];
	char command[1024];
	size_t length;
	FILE *stream;
	int status;

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	snprintf(command, sizeof(command), "%s/%s 2>&1", EXAMPLES_DIR, command_line);
	stream = popen(command, "r");
	CHECK(stream != NULL);
	length = fread(output, 1, sizeof(output) - 1, stream);
	output[length] = '\0';
	status = pclose(stream);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		TEST_FAIL("'%s' ended with status %d and said: %s", command, status, output);
	return output;
}

static void test_chat(void)
{
	for (unsigned i = 0; i < TEST_COUNT(addresses); i++) {
		char command[128];
		const char *output;

		snprintf(command, sizeof(command), "07_chat %s", addresses[i]);
		output = run(command);
		CHECK_CONTAINS(output, "parent: hello, who is there?\nchild: a remora\n");
		CHECK_CONTAINS(output, "child: with a shark\nparent: bye\n");
		CHECK_CONTAINS(output, "the other one has left: the peer closed the connection\n");
	}
}

static void test_remote_counter(void)
{
	for (unsigned i = 0; i < TEST_COUNT(addresses); i++) {
		char command[128];

		snprintf(command, sizeof(command), "08_remote_counter %s", addresses[i]);
		CHECK_STR(run(command), "4 processes, 1000 times each: 4000\n");
	}
}

static void make_file(const char *name, size_t length)
{
	FILE *file = fopen(name, "w");
	struct test_rng rng;
	uint8_t data[4096];

	test_rng_init(&rng, 1);
	CHECK(file != NULL);
	while (length > 0) {
		size_t part = length < sizeof(data) ? length : sizeof(data);

		test_rng_fill(&rng, data, part);
		CHECK_EQ(fwrite(data, 1, part, file), part);
		length -= part;
	}
	CHECK_EQ(fclose(file), 0);
}

static void test_file_copy(void)
{
	char from[256], to[256], command[1024], compare[600];

	snprintf(from, sizeof(from), "%s/from", test_tmpdir());
	snprintf(to, sizeof(to), "%s/to", test_tmpdir());
	make_file(from, 5000001);
	snprintf(compare, sizeof(compare), "cmp %s %s", from, to);
	for (unsigned i = 0; i < TEST_COUNT(addresses); i++) {
		const char *output;

		snprintf(command, sizeof(command), "09_file_copy %s %s %s", from, to, addresses[i]);
		output = run(command);
		CHECK_CONTAINS(output, "  5%\n");
		CHECK_CONTAINS(output, "100%\n");
		CHECK_EQ(system(compare), 0);
		CHECK_EQ(remove(to), 0);
	}
}

static const struct test tests[] = {
	{"example_07_chat", test_chat},
	{"example_08_remote_counter", test_remote_counter},
	{"example_09_file_copy", test_file_copy},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "rdma_examples_test", tests, TEST_COUNT(tests));
}
