/*
 * The conformance suite: what <remora/fabric.h> promises, tried on one device.
 *
 *	fabric_conformance --provider shm|tcp|fault:shm|... [--host ADDRESS] [--fault-plan PLAN]
 *
 * and the harness's own options (--list, --filter, --fast). The same tests run on every device,
 * always between separate processes; what a device says that it cannot do is skipped by name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conformance.h"

#define MAX_TESTS 256

static const struct test *const tables[] = {
	limit_tests,   memory_tests,   transfer_tests,	 message_tests, order_tests,
	atomic_tests,  access_tests,   descriptor_tests, flow_tests,	many_tests,
	connect_tests, stranger_tests, close_tests,	 death_tests,	wait_tests,
	leak_tests,    load_tests,
};

/* Takes our options out of argv and leaves the harness's. */
static int take_options(int argc, char **argv)
{
	const struct {
		const char *name;
		const char **value;
	} options[] = {
		{"--provider", &fixture.device},
		{"--host", &fixture.host},
		{"--fault-plan", &fixture.fault_plan},
	};
	int from, to = 1;
	size_t i;

	for (from = 1; from < argc; from++) {
		for (i = 0; i < TEST_COUNT(options); i++)
			if (strcmp(argv[from], options[i].name) == 0)
				break;
		if (i == TEST_COUNT(options)) {
			argv[to++] = argv[from];
			continue;
		}
		if (++from == argc) {
			fprintf(stderr, "%s needs a value\n", options[i].name);
			exit(2);
		}
		*options[i].value = argv[from];
	}
	argv[to] = NULL;
	return to;
}

/* Opens the device once before the tests, which run in copies of this process: some load libraries
 * that take their time. What is wrong with it, the tests will tell. */
static void warm_up(void)
{
	struct rmr_device_options options = {.fault_plan = fixture.fault_plan};
	struct rmr_device *device;

	/* By verbs libfabric keeps files open that the kernel does not let a copy use. */
	if (strncmp(fixture.device, "ofi", 3) != 0 || strstr(fixture.device, "verbs"))
		return;
	if (rmr_device_open(fixture.device, &options, &device) == RMR_OK)
		rmr_device_close(device);
}

int main(int argc, char **argv)
{
	static struct test tests[MAX_TESTS];
	size_t count = 0, i;
	const struct test *test;

	if (getenv("REMORA_LOG") == NULL)
		log_set_level(LOG_LEVEL_ERROR); /* the warnings here are what a test is about */
	argc = take_options(argc, argv);
	if (fixture.device == NULL)
		fixture.device = "shm";
	if (fixture.host == NULL && strstr(fixture.device, "shm") == NULL)
		fixture.host = "127.0.0.1";
	warm_up();
	for (i = 0; i < TEST_COUNT(tables); i++)
		for (test = tables[i]; test->name != NULL && count < MAX_TESTS; test++)
			tests[count++] = *test;
	return test_main(argc, argv, "fabric_conformance", tests, count);
}
