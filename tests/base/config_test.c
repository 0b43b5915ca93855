/* Configuration files: what is understood, every mistake with its line, and what is written. */
#include "base/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/test.h"

static struct {
	bool huge;
	uint64_t port, size, wait_ns;
	int64_t shift;
	double ratio;
	const char *device, *file;
	int op;
	const char *config;
} args;

static const char *const ops[] = {"evict", "reject", NULL};
static const char *const excluded[] = {"config", NULL};

static const struct option_spec specs[] = {
	OPTION_FLAG("huge", 'H', &args.huge, "huge pages"),
	OPTION_UINT("port", 'p', &args.port, "where", .max = 65535),
	OPTION_SIZE("memory", 'm', &args.size, "how much"),
	OPTION_SIZE("size", 0, &args.size, "the same as --memory"),
	OPTION_DURATION("wait", 0, &args.wait_ns, "how long"),
	OPTION_INT("shift", 0, &args.shift, "how far"),
	OPTION_DOUBLE("ratio", 0, &args.ratio, "which part"),
	OPTION_STRING("device", 'd', &args.device, "which"),
	OPTION_STRING("file", 0, &args.file, "where from"),
	OPTION_CHOICE("on-full", 0, &args.op, ops, "what then"),
	OPTION_STRING("config", 0, &args.config, "a file"),
};

static const struct options_program program = {
	.name = "tool",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
};

static char message[OPTIONS_MESSAGE_SIZE];
static char text[4096];

static bool parse_bytes(const char *bytes, size_t length)
{
	memset(&args, 0, sizeof(args));
	args.device = args.file = args.config = "";
	message[0] = '\0';
	memcpy(text, bytes, length);
	text[length] = '\0';
	return config_parse(&program, excluded, "a.conf", text, length, message);
}

static bool parse(const char *content)
{
	return parse_bytes(content, strlen(content));
}

static void test_lines(void)
{
	CHECK(parse(""));
	CHECK(parse("\n\n  # nothing\n\t\n#port = 1\n"));
	CHECK_EQ(args.port, 0);
	CHECK(parse("port = 12\nmemory=64KB\n\thuge =yes \n on-full= reject\r\nwait = 250ms\n"
		    "shift = -3\nratio = .5\ndevice = mlx5_0"));
	CHECK_EQ(args.port, 12);
	CHECK_EQ(args.size, 65536);
	CHECK(args.huge);
	CHECK_EQ(args.op, 1);
	CHECK_EQ(args.wait_ns, 250000000);
	CHECK_EQ(args.shift, -3);
	CHECK(args.ratio == 0.5);
	CHECK_STR(args.device, "mlx5_0");
}

static void test_values(void)
{
	static const struct {
		const char *line, *value;
	} cases[] = {
		{"device = two words", "two words"},
		{"device = a\t# comment", "a"},
		{"device = a#b", "a#b"},
		{"device = a=b", "a=b"},
		{"device = \" a # b \" # comment", " a # b "},
		{"device = \"say \\\"hi\\\" \\\\ \\n\"", "say \"hi\" \\ \\n"},
		{"device = 'a \"b\" \\'#c", "a \"b\" \\"},
		{"device = \"\"", ""},
		{"device = it's", "it's"},
	};

	for (size_t i = 0; i < OPTIONS_COUNT(cases); i++) {
		CHECK(parse(cases[i].line));
		CHECK_STR(args.device, cases[i].value);
	}
}

static void test_mistakes(void)
{
	static const struct {
		const char *content, *message;
	} cases[] = {
		{"port", "a.conf:1: this is no 'name = value'; a comment begins with #"},
		{"= 3", "a.conf:1: this is no 'name = value'; a comment begins with #"},
		{"\n\nport = 70000\n", "a.conf:3: port: '70000' is more than 65535"},
		{"port = x # y", "a.conf:1: port: 'x' is not a whole number of 0 or more"},
		{"prot = 1", "a.conf:1: unknown option --prot; did you mean --port?"},
		{"frobnicate = 1", "a.conf:1: unknown option --frobnicate; --help lists all"},
		{"--port = 1", "a.conf:1: unknown option ----port"},
		{"huge = perhaps", "a.conf:1: huge: 'perhaps' is neither yes nor no"},
		{"on-full = explode", "a.conf:1: on-full: 'explode' is not one of evict, reject"},
		{"device =", "a.conf:1: no value; write \"\" for an empty one"},
		{"device = # a", "a.conf:1: no value; write \"\" for an empty one"},
		{"device = \"a", "a.conf:1: the quote is not closed"},
		{"device = \"a\\\"", "a.conf:1: the quote is not closed"},
		{"device = 'a' b", "a.conf:1: 'b' follows the closing quote"},
		{"port = 1\nport = 1", "a.conf:2: port: line 1 has set it already"},
		{"\nsize = 1\nmemory = 1", "a.conf:3: memory: line 2 has set it already"},
		{"config = b.conf", "a.conf:1: config belongs to the command line, not into"},
	};

	for (size_t i = 0; i < OPTIONS_COUNT(cases); i++) {
		CHECK(!parse(cases[i].content));
		CHECK_CONTAINS(message, cases[i].message);
	}
	CHECK(!parse_bytes("port = 1\nport\0= 2", 17));
	CHECK_STR(message, "a.conf:2: a zero byte: this is no text file");
	CHECK_EQ(args.port, 1);
}

static void write_file(const char *path, size_t length)
{
	FILE *file = fopen(path, "w");

	CHECK(file != NULL);
	fputs("port = 7\n", file);
	for (size_t i = 9; i < length; i++)
		fputc('\n', file);
	CHECK_EQ(fclose(file), 0);
}

static void test_files(void)
{
	char path[512], *kept;

	snprintf(path, sizeof(path), "%s/tool.conf", test_tmpdir());
	CHECK(!config_read(&program, excluded, path, &kept, message));
	CHECK_CONTAINS(message, "cannot read ");
	CHECK_CONTAINS(message, "/tool.conf: No such file or directory");
	free(kept);
	CHECK(!config_read(&program, excluded, test_tmpdir(), &kept, message));
	CHECK_CONTAINS(message, "Is a directory");
	free(kept);
	write_file(path, 9);
	CHECK(config_read(&program, excluded, path, &kept, message));
	CHECK_EQ(args.port, 7);
	free(kept);
	write_file(path, CONFIG_SIZE_MAX - 1);
	CHECK(config_read(&program, excluded, path, &kept, message));
	free(kept);
	write_file(path, CONFIG_SIZE_MAX);
	CHECK(!config_read(&program, excluded, path, &kept, message));
	CHECK_CONTAINS(message, "longer than 1MiB");
	free(kept);
}

/* What is written is read back to the same. */
static void test_write(void)
{
	static const char expected[] = "huge = yes\nport = 12\nmemory = 64KiB\nsize = 64KiB\n"
				       "wait = 250ms\nshift = -3\nratio = 0.5\n"
				       "device = \"a \\\"b\\\" \\\\ #c\"\n# file = \"\"\n"
				       "on-full = reject\n";
	static const char *const and_size[] = {"config", "size", NULL};
	char *written;
	size_t size;
	FILE *file = open_memstream(&written, &size);

	CHECK(file != NULL);
	CHECK(parse("huge = on\nport = 12\nmemory = 65536\nwait = 250ms\nshift = -3\nratio = .5\n"
		    "device = 'a \"b\" \\ #c'\non-full = reject"));
	config_write(&program, excluded, file);
	fflush(file);
	CHECK_STR(written, expected);
	rewind(file);
	config_write(&program, and_size, file);
	CHECK_EQ(fclose(file), 0);
	CHECK(parse(written));
	CHECK_STR(args.device, "a \"b\" \\ #c");
	CHECK_EQ(args.size, 65536);
	free(written);
}

static const struct test tests[] = {
	{"lines", test_lines}, {"values", test_values}, {"mistakes", test_mistakes},
	{"files", test_files}, {"write", test_write},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "config_test", tests, TEST_COUNT(tests));
}
