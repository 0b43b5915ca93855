/* Messages that name fields of options, in the words of a command line. */
#include <string.h>

#include "common/flag_words.h"
#include "harness/test.h"

static const struct {
	const char *text, *expected;
} cases[] = {
	{"none was given: set key_file, or REMORA_KEY_FILE in the environment",
	 "none was given: set --key-file, or REMORA_KEY_FILE in the environment"},
	{"needs a larger buffer_size here", "needs a larger --buffer-mb here"},
	{"name who signed it by ca_file", "name who signed it by --ca-file"},
	{"or have it listen with socket_mode and any_user: Permission denied",
	 "or have it listen with --any-user: Permission denied"},
	{"key_file", "--key-file"},
	{"(key_file) and ca_file; buffer_size", "(--key-file) and --ca-file; --buffer-mb"},
};

static void test_fields_become_flags(void)
{
	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		CHECK_STR(flag_words(cases[i].text), cases[i].expected);
}

/* What somebody named so himself, and what only looks like it. */
static void test_the_rest_stays(void)
{
	static const char *const texts[] = {
		"",
		"nobody listens there",
		"key file /etc/key_file: No such file or directory",
		"key file key_file.txt: line 1 has 3 bytes",
		"read_key_file",
		"the key_files",
	};

	for (size_t i = 0; i < TEST_COUNT(texts); i++)
		CHECK(flag_words(texts[i]) == texts[i]);
	CHECK(!flag_words(NULL));
}

/* However long: the end is missing, and no more. */
static void test_long_text(void)
{
	static char text[10000];
	const char *result;

	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "key_file ", 9);
	result = flag_words(text);
	CHECK(strncmp(result, "--key-file xxx", 14) == 0);
	CHECK(strlen(result) > 1000 && strlen(result) < sizeof(text));
}

static const struct test tests[] = {
	{"fields_become_flags", test_fields_become_flags},
	{"the_rest_stays", test_the_rest_stays},
	{"long_text", test_long_text},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "flag_words", tests, TEST_COUNT(tests));
}
