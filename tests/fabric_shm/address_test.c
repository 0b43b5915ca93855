/* Where names and paths of the shm provider lead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/shm/internal.h"
#include "harness/test.h"

static void test_names_and_paths(void)
{
	char path[SHM_PATH_SIZE], expected[300];

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	CHECK_OK(shm_address_to_listen("cache-1.a_b", path));
	snprintf(expected, sizeof(expected), "%s/cache-1.a_b.sock", test_tmpdir());
	CHECK_STR(path, expected);
	CHECK_OK(shm_address_to_connect("cache-1.a_b", 0, path));
	CHECK_STR(path, expected);
	CHECK_STATUS(shm_address_to_connect("cache-1.a_b", 1, path), RMR_AGAIN);
	CHECK_OK(shm_address_to_listen("/a/b/c.sock", path));
	CHECK_STR(path, "/a/b/c.sock");
	CHECK_STATUS(shm_address_to_connect("./here", 1, path), RMR_AGAIN);
	CHECK_OK(shm_address_to_connect("./here", 0, path));
	CHECK_STR(path, "./here");
}

static void test_bad_names(void)
{
	static const char *const bad[] = {"a b", "a:b", ".hidden", "é", "*"};
	char path[SHM_PATH_SIZE], longest[200];

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	for (size_t i = 0; i < TEST_COUNT(bad); i++) {
		CHECK_STATUS(shm_address_to_listen(bad[i], path), RMR_BAD_ADDRESS);
		CHECK_STATUS(shm_address_to_connect(bad[i], 0, path), RMR_BAD_ADDRESS);
	}
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = 0;
	CHECK_STATUS(shm_address_to_listen(longest, path), RMR_BAD_ADDRESS);
	CHECK_STATUS(shm_address_to_connect(longest, 0, path), RMR_BAD_ADDRESS);
	longest[0] = '/';
	CHECK_STATUS(shm_address_to_listen(longest, path), RMR_BAD_ADDRESS);
}

/* Users look at their own directories first, then at the system's. */
static void test_directories_without_a_choice(void)
{
	bool root = geteuid() == 0;
	char path[SHM_PATH_SIZE], runtime[SHM_PATH_SIZE], expected[200];

	/* Set but empty is the same as not set. */
	setenv("REMORA_SHM_DIR", "", 1);
	if (root)
		CHECK_EQ(chown(test_tmpdir(), 65534, 65534), 0);
	if (root)
		CHECK_EQ(seteuid(65534), 0);
	snprintf(runtime, sizeof(runtime), "%s/run", test_tmpdir());
	CHECK_EQ(mkdir(runtime, 0700), 0);
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	/* Not there: nobody can listen in it. */
	CHECK_STATUS(shm_address_to_connect("cache", 0, path), RMR_REFUSED);
	snprintf(expected, sizeof(expected), "%s/remora/cache.sock", runtime);
	CHECK_OK(shm_address_to_listen("cache", path));
	CHECK_STR(path, expected);
	CHECK_OK(shm_address_to_connect("cache", 0, path));
	CHECK_STR(path, expected);
	CHECK_OK(shm_address_to_connect("cache", 2, path));
	CHECK_STR(path, "/run/remora/cache.sock");
	CHECK_STATUS(shm_address_to_connect("cache", 3, path), RMR_AGAIN);
	/* Back to what it was: a sanitizer that looks for leaks at the end must be able to. */
	if (root) {
		CHECK_EQ(seteuid(0), 0);
		CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
	}
}

/* A directory that somebody else made, or may write to, could hold a socket that was planted. */
static void test_a_strangers_directory(void)
{
	char path[SHM_PATH_SIZE];

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	CHECK_EQ(chmod(test_tmpdir(), 0777), 0);
	CHECK_STATUS(shm_address_to_listen("cache", path), RMR_DENIED);
	CHECK_STATUS(shm_address_to_connect("cache", 0, path), RMR_DENIED);
	CHECK_EQ(chmod(test_tmpdir(), 0700), 0);
	CHECK_OK(shm_address_to_connect("cache", 0, path));
	if (geteuid() != 0)
		TEST_SKIP("the rest needs root, to make a directory of another user");
	CHECK_EQ(chown(test_tmpdir(), 12345, 12345), 0);
	CHECK_STATUS(shm_address_to_listen("cache", path), RMR_DENIED);
	CHECK_STATUS(shm_address_to_connect("cache", 0, path), RMR_DENIED);
	CHECK_EQ(chown(test_tmpdir(), 0, 0), 0);
}

static const struct test tests[] = {
	{"names_and_paths", test_names_and_paths},
	{"bad_names", test_bad_names},
	{"directories_without_a_choice", test_directories_without_a_choice},
	{"a_strangers_directory", test_a_strangers_directory},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "shm_address", tests, TEST_COUNT(tests));
}
