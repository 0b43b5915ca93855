/* What names of peers mean to the easy library. */
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "rdma/address.h"

struct meaning {
	const char *name;
	int port;
	enum address_use use;
	const char *device, *address; /* of the only way */
};

static void test_devices_by_name(void)
{
	static const struct meaning meanings[] = {
		{"shm:chat", 7, ADDRESS_CONNECT, "shm", "chat"},
		{"shm:chat", 7, ADDRESS_LISTEN, "shm", "chat"},
		{"shm:/tmp/a socket", 0, ADDRESS_LISTEN, "shm", "/tmp/a socket"},
		{"shm://localhost", 7, ADDRESS_CONNECT, "shm", "rdma-7"},
		{"fault:shm://", 7, ADDRESS_LISTEN, "fault:shm", "rdma-7"},
		{"tcp://10.0.0.1", 7, ADDRESS_CONNECT, "tcp", "10.0.0.1:7"},
		{"tcp://10.0.0.1:8", 7, ADDRESS_CONNECT, "tcp", "10.0.0.1:8"},
		{"tcp://", 7, ADDRESS_CONNECT, "tcp", "localhost:7"},
		{"tcp://", 7, ADDRESS_LISTEN, "tcp", "*:7"},
		{"tcp://*", 0, ADDRESS_LISTEN, "tcp", "*:0"},
		{"tcp://:9", 7, ADDRESS_LISTEN, "tcp", "*:9"},
		{"tcp://[::1]:8", 7, ADDRESS_CONNECT, "tcp", "[::1]:8"},
		{"tcp://::1", 7, ADDRESS_CONNECT, "tcp", "[::1]:7"},
		{"verbs:mlx5_0,socket://host", 7, ADDRESS_CONNECT, "verbs:mlx5_0,socket", "host:7"},
	};

	for (size_t i = 0; i < TEST_COUNT(meanings); i++) {
		const struct meaning *meaning = &meanings[i];
		struct address_list list;

		CHECK_OK(address_find(meaning->name, meaning->port, meaning->use, &list));
		CHECK_EQ(list.count, 1);
		CHECK(list.is_chosen);
		CHECK_STR(list.at[0].device, meaning->device);
		CHECK_STR(list.at[0].address, meaning->address);
		CHECK_STR(list.at[0].reason, "");
	}
}

static void test_nonsense(void)
{
	static const struct {
		const char *name;
		int port;
		enum rmr_status status;
	} cases[] = {
		{"shm:", 7, RMR_BAD_ADDRESS},
		{"://host", 7, RMR_BAD_ADDRESS},
		{"tcp://host:70000", 7, RMR_BAD_ADDRESS},
		{"tcp://host:", 7, RMR_BAD_ADDRESS},
		{"tcp://[::1", 7, RMR_BAD_ADDRESS},
		{"host", 70000, RMR_INVALID},
		{"host", -1, RMR_INVALID},
		{NULL, 0, RMR_INVALID},
	};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct address_list list;

		CHECK_STATUS(address_find(cases[i].name, cases[i].port, ADDRESS_CONNECT, &list),
			     cases[i].status);
		CHECK(rmr_error_message()[0] != 0);
	}
}

/* The way by this device; it has to be there. */
static const struct address *by(const struct address_list *list, const char *device)
{
	for (unsigned i = 0; i < list->count; i++)
		if (strcmp(list->at[i].device, device) == 0)
			return &list->at[i];
	CHECK(!"no way by that device");
	return NULL;
}

static void test_plain_host_takes_all(void)
{
	struct address_list list;

	unsetenv(ADDRESS_DEVICE_VARIABLE);
	CHECK_OK(address_find("127.0.0.1", 7, ADDRESS_CONNECT, &list));
	CHECK(!list.is_chosen);
	CHECK_STR(list.at[0].device, "shm");
	CHECK_STR(list.at[0].address, "rdma-7");
	CHECK_STR(by(&list, "tcp")->address, "127.0.0.1:7");

	CHECK_OK(address_find("192.0.2.1", 7, ADDRESS_CONNECT, &list));
	CHECK(strstr(by(&list, "shm")->reason, "another host"));
	CHECK_STR(by(&list, "tcp")->address, "192.0.2.1:7");

	CHECK_OK(address_find(NULL, 7, ADDRESS_LISTEN, &list));
	CHECK_STR(by(&list, "shm")->address, "rdma-7");
	CHECK_STR(by(&list, "tcp")->address, "*:7");
}

static void test_environment_chooses(void)
{
	struct address_list list;
	char device[64];

	setenv(ADDRESS_DEVICE_VARIABLE, "tcp", 1);
	CHECK_OK(address_find("127.0.0.1", 7, ADDRESS_CONNECT, &list));
	CHECK_EQ(list.count, 1);
	CHECK(list.is_chosen);
	CHECK_STR(list.at[0].device, "tcp");
	/* What the name says goes before it. */
	CHECK_OK(address_find("shm://", 7, ADDRESS_CONNECT, &list));
	CHECK_STR(list.at[0].device, "shm");
	setenv(ADDRESS_DEVICE_VARIABLE, "shm", 1);
	address_default_device(device);
	CHECK_STR(device, "shm");
	CHECK_OK(address_find(NULL, 7, ADDRESS_LISTEN, &list));
	CHECK_EQ(list.count, 1);
	CHECK_STR(list.at[0].address, "rdma-7");
}

static const struct test tests[] = {
	{"devices_by_name", test_devices_by_name},
	{"nonsense", test_nonsense},
	{"plain_host_takes_all", test_plain_host_takes_all},
	{"environment_chooses", test_environment_chooses},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "rdma_address", tests, TEST_COUNT(tests));
}
