/* The list of where to listen: what becomes of it, without opening anything. */
#include <stdio.h>
#include <string.h>

#include "harness/test.h"
#include "server/internal.h"

/* Each path as "kind name address flags", with ';' behind it. */
static void check_list(const char *list, bool socket_mode, const char *expected)
{
	static const char *const kinds[] = {"shm", "tcp", "verbs", "ofi"};
	struct kv_server_options options = {.listen = list, .socket_mode = socket_mode};
	static struct kv_server server;
	char text[1024] = "";
	size_t used = 0;

	memset(&server, 0, sizeof(server));
	server.options = options;
	CHECK_EQ(listen_parse(&server, &options), KV_OK);
	for (unsigned i = 0; i < server.path_count; i++) {
		const struct server_path *path = &server.paths[i];

		used += (size_t)snprintf(
			text + used, sizeof(text) - used, "%s %s %s%s%s;", kinds[path->kind],
			path->name, path->address[0] ? path->address : "-",
			path->named ? " named" : "", path->by_socket ? " socket" : "");
	}
	CHECK_STR(text, expected);
}

static void check_wrong(const char *list)
{
	struct kv_server_options options = {.listen = list};
	static struct kv_server server;

	memset(&server, 0, sizeof(server));
	server.options = options;
	CHECK_EQ(listen_parse(&server, &options), KV_INVALID);
}

static void test_right(void)
{
	check_list("shm", false, "shm shm - named;");
	check_list("shm:cache", false, "shm shm cache named;");
	check_list("shm:/run/a.sock,tcp", false, "shm shm /run/a.sock named;tcp tcp - named;");
	check_list("tcp://10.0.0.1:7", false, "tcp tcp 10.0.0.1:7 named;");
	check_list("tcp://[::1]:7, tcp://h", false, "tcp tcp [::1]:7 named;tcp tcp h named;");
	check_list("verbs:mlx5_0", false, "verbs verbs:mlx5_0 - named;");
	check_list("verbs:mlx5_0,socket,tcp", false,
		   "verbs verbs:mlx5_0,socket - named socket;tcp tcp - named;");
	check_list("verbs:mlx5_0,cm,shm", false, "verbs verbs:mlx5_0 - named;shm shm - named;");
	check_list("verbs:a,gid=3,socket,verbs:b", false,
		   "verbs verbs:a,gid=3,socket - named socket;verbs verbs:b - named;");
	check_list("tcp,verbs:a,cm,gid=1", false, "tcp tcp - named;verbs verbs:a,gid=1 - named;");
	check_list("verbs:a,socket://10.0.0.1:7", false,
		   "verbs verbs:a,socket 10.0.0.1:7 named socket;");
	check_list("verbs:a,socket://10.0.0.1:7,verbs:b,socket://[fe80::1]:8,tcp", false,
		   "verbs verbs:a,socket 10.0.0.1:7 named socket;"
		   "verbs verbs:b,socket [fe80::1]:8 named socket;tcp tcp - named;");
	check_list("verbs:a://h:7,verbs:b,gid=3://h", false,
		   "verbs verbs:a h:7 named;verbs verbs:b,gid=3 h named;");
	check_list("verbs:a,cm://h,shm", false, "verbs verbs:a h named;shm shm - named;");
	check_list("ofi", false, "ofi ofi - named;");
	check_list("ofi:tcp,tcp", false, "ofi ofi:tcp - named;tcp tcp - named;");
	check_list("ofi:efa:rdmap0s6-rdm", false, "ofi ofi:efa:rdmap0s6-rdm - named;");
	check_list("ofi:tcp://10.0.0.1:7", false, "ofi ofi:tcp 10.0.0.1:7 named;");
	check_list("ofi://h", false, "ofi ofi h named;");
	check_list("fault:shm,fault:tcp", false, "shm fault:shm - named;tcp fault:tcp - named;");
}

static void test_socket_mode(void)
{
	check_list("verbs:a,verbs:b,socket", true,
		   "verbs verbs:a,socket - named socket;verbs verbs:b,socket - named socket;");
	check_list("verbs:a://h:7", true, "verbs verbs:a,socket h:7 named socket;");
	check_list("tcp", true, "tcp tcp - named;");
}

static void test_wrong(void)
{
	static const char *const wrong[] = {
		"",	      ",",	    "pigeon",	 "ofi:",       "ofitcp",
		"ofi:tcp://", "ofi:://h",   "shm:",	 "tcp:",       "tcp:h:1",
		"tcp://",     "shm,socket", "shmem",	 "tcp,gid=3",  "verbs:a,tcp,socket",
		"socket",     "verbs:",	    "verbs://h", "verbs:a://", "socket://h:1",
	};

	for (size_t i = 0; i < TEST_COUNT(wrong); i++)
		check_wrong(wrong[i]);
}

static void test_too_many(void)
{
	char list[1024] = "shm";

	for (unsigned i = 0; i < SERVER_MAX_PATHS; i++)
		strcat(list, ",shm");
	check_wrong(list);
}

static const struct test tests[] = {
	{"right", test_right},
	{"socket_mode", test_socket_mode},
	{"wrong", test_wrong},
	{"too_many", test_too_many},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_names", tests, TEST_COUNT(tests));
}
