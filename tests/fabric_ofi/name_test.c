/*
 * Names of ofi devices: which there are, and what somebody is told who asks for another.
 */
#include <remora/fabric.h>
#include <signal.h>
#include <string.h>

#include "harness/test.h"

static void open_as(const char *name)
{
	struct rmr_device *device;

	CHECK_OK(rmr_device_open(name, NULL, &device));
	CHECK_STR(rmr_device_info(device)->name, name);
	CHECK_STR(rmr_device_info(device)->provider, "ofi");
	rmr_device_close(device);
}

static void test_good(void)
{
	open_as("ofi");
	open_as("ofi:tcp");
	open_as("ofi:tcp;ofi_rxm");
}

static void test_wrong(void)
{
	static const struct {
		const char *name, *told;
	} wrong[] = {
		{"ofi:efa", "docs/providers.md"},
		{"ofi:nonsense", "fi_info"},
		{"ofi:tcp:no-such-interface", "no-such-interface"},
	};
	struct rmr_device *device;

	for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
		enum rmr_status status = rmr_device_open(wrong[i].name, NULL, &device);

		if (status == RMR_OK) {
			rmr_device_close(device);
			TEST_SKIP("'%s' is here", wrong[i].name);
		}
		CHECK_EQ(status, RMR_NO_DEVICE);
		CHECK_CONTAINS(rmr_error_message(), wrong[i].told);
	}
}

static void on_term(int number)
{
	(void)number;
}

/* libfabric takes signals for itself; the program has them back. */
static void test_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGBUS, SIGSEGV};
	struct sigaction mine = {.sa_handler = on_term}, now;

	for (size_t i = 0; i < TEST_COUNT(numbers); i++)
		CHECK_EQ(sigaction(numbers[i], &mine, NULL), 0);
	open_as("ofi:tcp");
	for (size_t i = 0; i < TEST_COUNT(numbers); i++) {
		CHECK_EQ(sigaction(numbers[i], NULL, &now), 0);
		CHECK(now.sa_handler == on_term);
	}
}

static void test_list(void)
{
	struct rmr_device_entry entries[32];
	size_t count = rmr_device_list(entries, TEST_COUNT(entries));
	bool tcp = false, efa = false;

	for (size_t i = 0; i < count && i < TEST_COUNT(entries); i++) {
		tcp |= strcmp(entries[i].name, "ofi:tcp") == 0 && entries[i].usable;
		efa |= strcmp(entries[i].name, "ofi:efa") == 0;
	}
	CHECK(tcp);
	CHECK(efa);
}

static const struct test tests[] = {
	{"name_good", test_good},
	{"name_wrong", test_wrong},
	{"name_list", test_list},
	{"signals_are_the_program_s", test_signals},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "ofi_name", tests, TEST_COUNT(tests));
}
