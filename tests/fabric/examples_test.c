/*
 * The examples do what their comments say, on every transport that is there: both processes end
 * well, and the output is what a newcomer is promised.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "harness/test.h"

/* Runs an example and returns all that it printed, errors included. */
static const char *run(const char *name, const char *device, int expected_exit)
{
	static char output[4096];
	char command[512];
	size_t length;
	FILE *stream;
	int status;

	snprintf(command, sizeof(command), "%s/%s %s 2>&1", EXAMPLES_DIR, name, device);
	stream = popen(command, "r");
	CHECK(stream != NULL);
	length = fread(output, 1, sizeof(output) - 1, stream);
	output[length] = '\0';
	status = pclose(stream);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != expected_exit)
		TEST_FAIL("'%s' ended with status %d and said: %s", command, status, output);
	return output;
}

static void check_hello(const char *device)
{
	const char *output = run("01_hello", device, 0);

	CHECK_CONTAINS(output, "server received: hello, server\n");
	CHECK_CONTAINS(output, "client received: hello, client\n");
}

static void test_hello(void)
{
	check_hello("");
	check_hello("shm");
	check_hello("tcp");
}

static void test_remote_read(void)
{
	CHECK_STR(run("02_remote_read", "", 0), "client read: a remora travels with a shark\n");
	CHECK_STR(run("02_remote_read", "shm", 0), "client read: a remora travels with a shark\n");
	CHECK_STR(run("02_remote_read", "tcp", 0), "client read: a remora travels with a shark\n");
}

static void test_two_adapters(void)
{
	CHECK_STR(run("03_two_adapters", "", 0), "client read: 8 MiB over device 0, tcp\n"
						 "client read: 8 MiB over device 1, tcp\n");
}

/* A device that does not exist is named, and the program fails. */
static void test_no_device(void)
{
	CHECK_CONTAINS(run("01_hello", "no-such-device", 1), "no-such-device");
	CHECK_CONTAINS(run("02_remote_read", "no-such-device", 1), "no-such-device");
}

static const struct test tests[] = {
	{"example_01_hello", test_hello},
	{"example_02_remote_read", test_remote_read},
	{"example_03_two_adapters", test_two_adapters},
	{"example_without_a_device", test_no_device},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "examples_test", tests, TEST_COUNT(tests));
}
