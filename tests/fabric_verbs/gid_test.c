/* Which GID of an adapter goes with an address. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "fake_adapter.h"
#include "harness/test.h"

static struct fake_adapter adapter;

/* As RoCE adapters have them: each address twice, and those of another port. */
static void make_table(void)
{
	fake_adapter_init(&adapter, "fake0");
	fake_adapter_add_gid(&adapter, 0, IBV_GID_TYPE_ROCE_V1, "fe80::1");
	fake_adapter_add_gid(&adapter, 1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_adapter_add_gid(&adapter, 2, IBV_GID_TYPE_ROCE_V1, "10.0.0.1");
	fake_adapter_add_gid(&adapter, 4, IBV_GID_TYPE_ROCE_V2, "2001:db8::1");
	fake_adapter_add_gid(&adapter, 5, IBV_GID_TYPE_ROCE_V2, "10.0.0.1");
	fake_adapter_add_gid(&adapter, 7, IBV_GID_TYPE_ROCE_V2, "10.0.0.2");
	fake_adapter_add_gid(&adapter, 0, IBV_GID_TYPE_ROCE_V2, "10.0.9.9");
	adapter.gids[6].port_num = 2;
}

static enum rmr_status choose(const char *address, int *index)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	const struct sockaddr *local = (struct sockaddr *)&v6;
	union ibv_gid gid;
	enum rmr_status status;

	if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
		local = (struct sockaddr *)&v4;
	else
		CHECK_EQ(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
	status = gid_choose(&adapter.device, local, index, &gid);
	for (size_t i = 0; status == RMR_OK && i < adapter.gid_count; i++) {
		if (adapter.gids[i].gid_index == (uint32_t)*index && adapter.gids[i].port_num == 1)
			CHECK_MEM(&gid, &adapter.gids[i].gid, sizeof(gid));
	}
	return status;
}

static void check_index(const char *address, int expected)
{
	int index = -1;

	CHECK_OK(choose(address, &index));
	CHECK_EQ(index, expected);
}

static void test_by_address(void)
{
	make_table();
	check_index("10.0.0.1", 5);
	check_index("10.0.0.2", 7);
	check_index("::ffff:10.0.0.2", 7); /* as a socket for both families tells it */
	check_index("2001:db8::1", 4);
	check_index("fe80::1", 1);
}

/* On one host any will do that both find alike: IPv4 first, link-local last. */
static void test_loopback(void)
{
	make_table();
	check_index("127.0.0.1", 5);
	check_index("127.1.2.3", 5);
	check_index("::ffff:127.0.0.1", 5);
	check_index("::1", 5);
	adapter.gids[4].gid_type = adapter.gids[5].gid_type = IBV_GID_TYPE_ROCE_V1;
	check_index("127.0.0.1", 4);
	adapter.gids[3].gid_type = IBV_GID_TYPE_ROCE_V1;
	check_index("127.0.0.1", 1);
}

static void test_by_name(void)
{
	int index;

	make_table();
	adapter.device.name.gid = 2;
	check_index("127.0.0.1", 2);
	check_index("192.0.2.1", 2);
	adapter.device.name.gid = 3;
	CHECK_STATUS(choose("10.0.0.1", &index), RMR_INVALID);
	CHECK_CONTAINS(rmr_error_message(), "fake0 has no GID 3");
	CHECK_CONTAINS(rmr_error_message(), "[5] RoCE v2 10.0.0.1");
}

/* The message says what is wrong, and what to do. */
static void test_nobodys(void)
{
	int index;

	make_table();
	CHECK_STATUS(choose("10.0.9.9", &index), RMR_BAD_ADDRESS); /* the other port's */
	CHECK_CONTAINS(rmr_error_message(), "no GID of fake0 belongs to 10.0.9.9");
	CHECK_CONTAINS(rmr_error_message(), "[0] RoCE v1 fe80::1, [1] RoCE v2 fe80::1");
	CHECK_CONTAINS(rmr_error_message(), "gid=N");
	adapter.gid_count = 0;
	CHECK_STATUS(choose("10.0.0.1", &index), RMR_BAD_ADDRESS);
	CHECK_CONTAINS(rmr_error_message(), "it has: none");
	CHECK_STATUS(choose("127.0.0.1", &index), RMR_UNSUPPORTED);
}

/* As many as the table can have; their list is cut. */
static void test_full_table(void)
{
	int index;

	fake_adapter_init(&adapter, "fake0");
	for (uint32_t i = 0; i < FAKE_GIDS_MAX; i++)
		fake_adapter_add_gid(&adapter, i, IBV_GID_TYPE_ROCE_V2,
				     "2001:db8:1111:2222:3333:4444:5555:6666");
	CHECK_STATUS(choose("10.0.0.1", &index), RMR_BAD_ADDRESS);
}

static void test_scope(void)
{
	struct sockaddr_in6 local = {.sin6_family = AF_INET6, .sin6_scope_id = 3};
	union ibv_gid gid;
	int index;

	fake_adapter_init(&adapter, "fake0");
	fake_adapter_add_gid(&adapter, 0, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_adapter_add_gid(&adapter, 1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	adapter.gids[0].ndev_ifindex = 2;
	adapter.gids[1].ndev_ifindex = 3;
	CHECK_EQ(inet_pton(AF_INET6, "fe80::1", &local.sin6_addr), 1);
	CHECK_OK(gid_choose(&adapter.device, (struct sockaddr *)&local, &index, &gid));
	CHECK_EQ(index, 1);
}

static void test_infiniband(void)
{
	fake_adapter_init(&adapter, "fake0");
	adapter.device.is_roce = false;
	fake_adapter_add_gid(&adapter, 0, IBV_GID_TYPE_IB, "fe80::1");
	fake_adapter_add_gid(&adapter, 1, IBV_GID_TYPE_IB, "fe80::2");
	check_index("10.0.0.1", 0);
	adapter.device.name.gid = 1;
	check_index("10.0.0.1", 1);
}

static void test_address(void)
{
	char text[64] = "";

	make_table();
	CHECK(gid_address(&adapter.device, text, sizeof(text)));
	CHECK_STR(text, "10.0.0.1");
	adapter.device.name.gid = 4;
	CHECK(gid_address(&adapter.device, text, sizeof(text)));
	CHECK_STR(text, "2001:db8::1");
	adapter.device.name.gid = 1;
	CHECK(!gid_address(&adapter.device, text, sizeof(text)));
	adapter.device.name.gid = -1;
	adapter.device.is_roce = false;
	CHECK(!gid_address(&adapter.device, text, sizeof(text)));
}

static const struct test tests[] = {
	{"gid_by_address", test_by_address}, {"gid_loopback", test_loopback},
	{"gid_by_name", test_by_name},	     {"gid_nobodys", test_nobodys},
	{"gid_full_table", test_full_table}, {"gid_scope", test_scope},
	{"gid_infiniband", test_infiniband}, {"gid_address", test_address},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "verbs_gid", tests, TEST_COUNT(tests));
}
