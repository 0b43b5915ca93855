/*
 * The example of the mesh does what its comment says, on the transports that are there: each of its
 * processes has the same sum, by messages and by memory.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "harness/test.h"

static const char *run(const char *device, int expected_exit)
{
	static char output[4096];
	char command[512];
	size_t length;
	FILE *stream;
	int status;

	snprintf(command, sizeof(command), "%s/10_mesh_sum %s 2>&1", EXAMPLES_DIR, device);
	stream = popen(command, "r");
	CHECK(stream != NULL);
	length = fread(output, 1, sizeof(output) - 1, stream);
	output[length] = '\0';
	status = pclose(stream);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != expected_exit)
		TEST_FAIL("'%s' ended with status %d and said: %s", command, status, output);
	return output;
}

static void check_sum(const char *device)
{
	const char *output = run(device, 0);

	for (int i = 0; i < 4; i++) {
		char line[64];

		snprintf(line, sizeof(line), "process %d: 1000 by messages, 1000 by memory\n", i);
		CHECK_CONTAINS(output, line);
	}
}

static void test_sum(void)
{
	check_sum("");
	check_sum("shm");
	check_sum("tcp");
}

static void test_no_device(void)
{
	CHECK_CONTAINS(run("no-such-device", 1), "no-such-device");
}

static const struct test tests[] = {
	{"example_10_mesh_sum", test_sum},
	{"example_10_without_a_device", test_no_device},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "mesh_example_test", tests, TEST_COUNT(tests));
}
