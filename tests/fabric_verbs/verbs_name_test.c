/*
 * Names of verbs devices: "mlx5_0,socket,gid=3". Every option, its limits, and what somebody is
 * told who got one wrong. Needs no adapter.
 */
#include <remora/fabric.h>
#include <string.h>

#include "fabric/verbs/internal.h"
#include "harness/test.h"

static void check_equal(const char *text, const struct verbs_name *name,
			const struct verbs_name *expected)
{
	if (strcmp(name->device, expected->device) != 0 || name->socket != expected->socket ||
	    name->gid != expected->gid || name->port != expected->port ||
	    name->mtu != expected->mtu || name->timeout != expected->timeout ||
	    name->retry != expected->retry)
		TEST_FAIL("'%s' is device '%s' socket %d gid %d port %d mtu %d timeout %d retry %d",
			  text, name->device, name->socket, name->gid, name->port, name->mtu,
			  name->timeout, name->retry);
}

static void test_good(void)
{
	static const struct {
		const char *text;
		struct verbs_name name;
	} good[] = {
		{"", {.gid = -1, .timeout = -1, .retry = 6}},
		{"mlx5_0", {.device = "mlx5_0", .gid = -1, .timeout = -1, .retry = 6}},
		{"rxe0,socket",
		 {.device = "rxe0", .socket = true, .gid = -1, .timeout = -1, .retry = 6}},
		{"socket", {.socket = true, .gid = -1, .timeout = -1, .retry = 6}},
		{"socket,gid=3", {.socket = true, .gid = 3, .timeout = -1, .retry = 6}},
		{"gid=0", {.gid = 0, .timeout = -1, .retry = 6}},
		{"gid=255", {.gid = 255, .timeout = -1, .retry = 6}},
		{"port=1", {.gid = -1, .port = 1, .timeout = -1, .retry = 6}},
		{"port=255", {.gid = -1, .port = 255, .timeout = -1, .retry = 6}},
		{"mtu=256", {.gid = -1, .mtu = 256, .timeout = -1, .retry = 6}},
		{"mtu=4096", {.gid = -1, .mtu = 4096, .timeout = -1, .retry = 6}},
		{"timeout=1", {.gid = -1, .timeout = 1, .retry = 6}},
		{"timeout=31", {.gid = -1, .timeout = 31, .retry = 6}},
		{"retry=0", {.gid = -1, .timeout = -1, .retry = 0}},
		{"retry=7", {.gid = -1, .timeout = -1, .retry = 7}},
		{"mlx5_0,socket,gid=3,port=2,mtu=1024,timeout=14,retry=5",
		 {"mlx5_0", true, .gid = 3, .port = 2, .mtu = 1024, .timeout = 14, .retry = 5}},
		{"mlx5_0,retry=5,timeout=14,mtu=1024,port=2,gid=3,socket",
		 {"mlx5_0", true, .gid = 3, .port = 2, .mtu = 1024, .timeout = 14, .retry = 5}},
	};

	for (size_t i = 0; i < TEST_COUNT(good); i++) {
		struct verbs_name name;

		memset(&name, 0x77, sizeof(name)); /* all of it is written */
		CHECK_OK(name_parse(good[i].text, &name));
		check_equal(good[i].text, &name, &good[i].name);
	}
}

/* What cannot be, and what the message says. */
static void test_bad(void)
{
	static const struct {
		const char *text, *part;
	} bad[] = {
		{"rxe0,gid=256", "'gid=256': write gid=NUMBER, from 0 to 255"},
		{"rxe0,gid=-1", "'gid=-1': write gid=NUMBER"},
		{"rxe0,gid=", "'gid=': write gid=NUMBER"},
		{"rxe0,gid", "'gid': write gid=NUMBER"},
		{"rxe0,gid=3x", "'gid=3x': write gid=NUMBER"},
		{"rxe0,gid=3=4", "'gid=3=4': write gid=NUMBER"},
		{"rxe0,gid=99999999999999999999", "write gid=NUMBER"},
		{"rxe0,gid= 3", "'gid= 3': write gid=NUMBER"},
		{"rxe0,gid=+3", "'gid=+3': write gid=NUMBER"},
		{"rxe0,port=0", "write port=NUMBER, from 1 to 255"},
		{"rxe0,port=256", "write port=NUMBER, from 1 to 255"},
		{"rxe0,mtu=255", "write mtu=NUMBER, from 256 to 4096"},
		{"rxe0,mtu=4097", "write mtu=NUMBER, from 256 to 4096"},
		{"rxe0,timeout=32", "write timeout=NUMBER, from 1 to 31"},
		{"rxe0,timeout=-1", "write timeout=NUMBER, from 1 to 31"},
		{"rxe0,retry=8", "write retry=NUMBER, from 0 to 7"},
		{"rxe0,rxe1", "'rxe1' is no option of a verbs device; there are: socket gid=N"},
		{"rxe0,sockets", "'sockets' is no option"},
		{"rxe0,Socket", "'Socket' is no option"},
		{"rxe0,=3", "'=3' is no option"},
		{"socket,rxe0", "'rxe0' is no option"},
		{"gids=3", "'gids=3' is no option"},
		{"gi=3", "'gi=3' is no option"},
		{"rxe0,,socket", "'' is no option"},
		{"rxe0,socket,", "ends with a comma"},
		{"rxe0,", "ends with a comma"},
		{",rxe0", "'rxe0' is no option"},
	};

	for (size_t i = 0; i < TEST_COUNT(bad); i++) {
		struct verbs_name name;

		if (name_parse(bad[i].text, &name) != RMR_INVALID)
			TEST_FAIL("'%s' is taken", bad[i].text);
		CHECK_CONTAINS(rmr_error_message(), bad[i].part);
	}
}

/* Names of adapters are at most IBV_SYSFS_NAME_MAX - 1 long. */
static void test_long(void)
{
	char text[4 * IBV_SYSFS_NAME_MAX];
	struct verbs_name name;

	memset(text, 'a', sizeof(text));
	text[IBV_SYSFS_NAME_MAX - 1] = '\0';
	CHECK_OK(name_parse(text, &name));
	CHECK_STR(name.device, text);

	memset(text, 'a', sizeof(text));
	text[IBV_SYSFS_NAME_MAX] = '\0';
	CHECK_STATUS(name_parse(text, &name), RMR_NO_DEVICE);
	CHECK_CONTAINS(rmr_error_message(), "too long for a device");

	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	CHECK_STATUS(name_parse(text, &name), RMR_NO_DEVICE);
	memcpy(text, "rxe0,gid=", 9);
	CHECK(name_parse(text, &name) != RMR_OK);
	memset(text + 9, '0', sizeof(text) - 10);
	CHECK(name_parse(text, &name) != RMR_OK);
}

/* Through the front door: the message says which device it is about. */
static void test_open(void)
{
	struct rmr_device *device = (struct rmr_device *)&device;

	CHECK_STATUS(rmr_device_open("verbs:rxe0,gid=x", NULL, &device), RMR_INVALID);
	CHECK_CONTAINS(rmr_error_message(), "verbs:rxe0,gid=x");
	CHECK_CONTAINS(rmr_error_message(), "write gid=NUMBER, from 0 to 255");
	CHECK(device == (struct rmr_device *)&device); /* not touched */
}

static const struct test tests[] = {
	{"good", test_good},
	{"bad", test_bad},
	{"long", test_long},
	{"open", test_open},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "verbs_name", tests, TEST_COUNT(tests));
}
