/* The command line: every form that is understood, every mistake and its message, and --help. */
#include "base/options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/version.h"
#include "harness/test.h"

static struct {
	bool json, verbose, mock, json_given;
	int64_t offset;
	uint64_t depth, size, time_ns;
	double ratio;
	const char *device;
	int op;
} args;

static const char *const ops[] = {"read", "write", "fadd", NULL};

static const struct option_spec specs[] = {
	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row",
		    .given = &args.json_given),
	OPTION_FLAG("verbose", 'v', &args.verbose, "say more"),
	OPTION_FLAG("mock", 'm', &args.mock, "pretend", .takes_word = true),
	OPTION_INT("offset", 'o', &args.offset, "where to begin", .int_min = -100, .int_max = 100),
	OPTION_UINT("depth", 'd', &args.depth, "operations in flight", .min = 1, .max = 1024),
	OPTION_SIZE("size", 's', &args.size, "bytes of an operation", .min = 1, .max = 1 << 20),
	OPTION_DURATION("seconds", 't', &args.time_ns, "how long", .max = 3600000000000),
	OPTION_DOUBLE("ratio", 0, &args.ratio, "part of reads", .real_min = 0, .real_max = 1),
	OPTION_STRING("device", 'D', &args.device, "which device", .metavar = "NAME"),
	OPTION_CHOICE("op", 0, &args.op, ops, "what to do"),
};

static const struct options_program program = {
	.name = "perf",
	.description = "Measures something.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.arguments = "COMMAND [FILE]",
	.min_arguments = 0,
	.max_arguments = 2,
	.examples = "  perf run --size 64KB\n",
};

static struct options_result result;

static void set_defaults(void)
{
	memset(&args, 0, sizeof(args));
	args.depth = 16;
	args.size = 8;
	args.time_ns = 2000000000;
	args.ratio = 0.5;
	args.device = "shm";
}

/* The words of a line, split at blanks, as main() would get them; "''" is an empty one. */
struct words {
	char text[8192];
	char *argv[32];
	int argc;
};

static struct words *split(const char *line)
{
	static struct words words;

	snprintf(words.text, sizeof(words.text), "perf %s", line);
	words.argc = 0;
	for (char *word = strtok(words.text, " "); word != NULL; word = strtok(NULL, " "))
		words.argv[words.argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
	return &words;
}

static enum options_outcome parse(const char *line)
{
	struct words *words = split(line);

	set_defaults();
	return options_parse(&program, words->argc, words->argv, &result);
}

static void test_forms(void)
{
	CHECK_EQ(parse(""), OPTIONS_OK);
	CHECK_EQ(result.argument_count, 0);
	CHECK(!args.json && !args.json_given);
	CHECK_EQ(args.size, 8);

	CHECK_EQ(parse("--json --size 64KB --depth=4 --op fadd --ratio .25"), OPTIONS_OK);
	CHECK(args.json && args.json_given && !args.verbose);
	CHECK_EQ(args.size, 65536);
	CHECK_EQ(args.depth, 4);
	CHECK_EQ(args.op, 2);
	CHECK(args.ratio == 0.25);

	CHECK_EQ(parse("-s 1k -d4 -jv -t250ms -D tcp"), OPTIONS_OK);
	CHECK_EQ(args.size, 1024);
	CHECK_EQ(args.depth, 4);
	CHECK_EQ(args.time_ns, 250000000);
	CHECK(args.json && args.verbose);
	CHECK_STR(args.device, "tcp");

	CHECK_EQ(parse("-jvs 2 -o -7 --device=''"), OPTIONS_OK);
	CHECK(args.json && args.verbose);
	CHECK_EQ(args.size, 2);
	CHECK_EQ(args.offset, -7);

	CHECK_EQ(parse("--json --json=no --size 1 --size 2"), OPTIONS_OK);
	CHECK(!args.json);
	CHECK_EQ(args.size, 2);

	CHECK_EQ(parse("--device --json"), OPTIONS_OK); /* a value may look like an option */
	CHECK_STR(args.device, "--json");
}

/* A flag that may have its word behind it takes that word and no other. */
static void test_flag_with_word(void)
{
	CHECK_EQ(parse("--mock true run"), OPTIONS_OK);
	CHECK(args.mock);
	CHECK_EQ(result.argument_count, 1);
	CHECK_STR(result.arguments[0], "run");

	CHECK_EQ(parse("-m --mock false run"), OPTIONS_OK);
	CHECK(!args.mock);
	CHECK_EQ(result.argument_count, 1);

	CHECK_EQ(parse("--mock run"), OPTIONS_OK);
	CHECK(args.mock);
	CHECK_EQ(result.argument_count, 1);
	CHECK_EQ(parse("run --mock"), OPTIONS_OK);
	CHECK(args.mock);
	CHECK_EQ(parse("--mock=false -- false"), OPTIONS_OK);
	CHECK(!args.mock);
	CHECK_STR(result.arguments[0], "false");

	CHECK_EQ(parse("--json true"), OPTIONS_OK); /* an ordinary flag: an argument */
	CHECK_EQ(result.argument_count, 1);
}

static void test_arguments(void)
{
	CHECK_EQ(parse("run -s 4 file -j"), OPTIONS_OK);
	CHECK_EQ(result.argument_count, 2);
	CHECK_STR(result.arguments[0], "run");
	CHECK_STR(result.arguments[1], "file");
	CHECK_EQ(args.size, 4);
	CHECK(args.json);

	CHECK_EQ(parse("-j -- -s --help"), OPTIONS_OK);
	CHECK_EQ(result.argument_count, 2);
	CHECK_STR(result.arguments[0], "-s");
	CHECK_STR(result.arguments[1], "--help");

	CHECK_EQ(parse("- ''"), OPTIONS_OK);
	CHECK_STR(result.arguments[0], "-");
	CHECK_STR(result.arguments[1], "");
}

static void test_help_and_version(void)
{
	CHECK_EQ(parse("--help"), OPTIONS_HELP);
	CHECK_EQ(parse("-h"), OPTIONS_HELP);
	CHECK_EQ(parse("-jh --nonsense"), OPTIONS_HELP);
	CHECK_EQ(parse("--version"), OPTIONS_VERSION);
}

static void test_mistakes(void)
{
	static const struct {
		const char *line, *message;
	} mistakes[] = {
		{"--size 12x", "--size: '12x' is not a size; use e.g. 64KiB or 1GiB"},
		{"-s 12x", "--size: '12x' is not a size; use e.g. 64KiB or 1GiB"},
		{"--size=0", "--size: '0' is less than 1"},
		{"--size 2M", "--size: '2M' is more than 1MiB"},
		{"--size ''", "--size: '' is not a size; use e.g. 64KiB or 1GiB"},
		{"--size", "--size: a value must follow"},
		{"-js", "-s (--size): a value must follow"},
		{"--seconds 2h", "--seconds: '2h' is more than 3600s"},
		{"--seconds soon", "--seconds: 'soon' is not a duration; use e.g. 10s or 250ms"},
		{"--depth 0", "--depth: '0' is less than 1"},
		{"--depth 2000", "--depth: '2000' is more than 1024"},
		{"--depth -1", "--depth: '-1' is not a whole number of 0 or more"},
		{"--depth 1.5", "--depth: '1.5' is not a whole number of 0 or more"},
		{"--depth 99999999999999999999",
		 "--depth: '99999999999999999999' is not a whole number of 0 or more"},
		{"--offset x", "--offset: 'x' is not a whole number"},
		{"--offset 101", "--offset: 101 is not between -100 and 100"},
		{"--ratio 1.5", "--ratio: 1.5 is not between 0 and 1"},
		{"--ratio nan", "--ratio: 'nan' is not a number"},
		{"--op fly", "--op: 'fly' is not one of read, write, fadd"},
		{"--json=maybe", "--json: 'maybe' is neither yes nor no"},
		{"--sise 4", "unknown option --sise; did you mean --size?"},
		{"--verb", "unknown option --verb; did you mean --verbose?"},
		{"--hlep", "unknown option --hlep; did you mean --help?"},
		{"--dept=4", "unknown option --dept; did you mean --depth?"},
		{"--frobnicate", "unknown option --frobnicate; --help lists all"},
		{"-x", "unknown option -x; --help lists all"},
		{"-jx", "unknown option -x; --help lists all"},
		{"a b c", "unexpected argument 'c'"},
	};

	for (size_t i = 0; i < TEST_COUNT(mistakes); i++) {
		CHECK_EQ(parse(mistakes[i].line), OPTIONS_WRONG);
		CHECK_STR(result.message, mistakes[i].message);
		CHECK_EQ(args.size, 8);
		CHECK_EQ(args.depth, 16);
	}
}

static void test_missing_argument(void)
{
	struct options_program strict = program;
	struct words *words = split("-j");

	strict.min_arguments = 1;
	CHECK_EQ(options_parse(&strict, words->argc, words->argv, &result), OPTIONS_WRONG);
	CHECK_STR(result.message, "missing argument; usage: perf [OPTION]... COMMAND [FILE]");
}

static void test_set_by_name(void)
{
	char message[OPTIONS_MESSAGE_SIZE];

	set_defaults();
	CHECK(options_set(&program, "size", "4KB", message));
	CHECK_EQ(args.size, 4096);
	CHECK(options_set(&program, "json", "on", message));
	CHECK(args.json);
	CHECK(options_set(&program, "json", "False", message));
	CHECK(!args.json);
	CHECK(!options_set(&program, "size", "big", message));
	CHECK_STR(message, "--size: 'big' is not a size; use e.g. 64KiB or 1GiB");
	CHECK_EQ(args.size, 4096);
	CHECK(!options_set(&program, "siez", "4", message));
	CHECK_STR(message, "unknown option --siez; did you mean --size?");
}

static void test_long_input(void)
{
	static char word[4000] = "--";

	memset(word + 2, 'x', sizeof(word) - 3);
	CHECK_EQ(parse(word), OPTIONS_WRONG);
	CHECK_EQ(strlen(result.message), OPTIONS_MESSAGE_SIZE - 1);
	memcpy(word, "--size=", 7);
	CHECK_EQ(parse(word), OPTIONS_WRONG);
	CHECK_EQ(strncmp(result.message, "--size: 'xxx", 12), 0);
}

static void test_help_text(void)
{
	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);

	set_defaults();
	CHECK(file != NULL);
	options_help(&program, file, 60);
	fclose(file);
	CHECK_EQ(strncmp(text, "usage: perf [OPTION]... COMMAND [FILE]\n", 39), 0);
	CHECK_CONTAINS(text, "\nMeasures something.\n");
	CHECK_CONTAINS(text, "\n  -j, --json               print one JSON object a row\n");
	CHECK_CONTAINS(text, "\n  -s, --size SIZE          bytes of an operation (default 8)\n");
	CHECK_CONTAINS(text, "\n      --op WORD            what to do: read, write, fadd\n"
			     "                           (default read)\n");
	CHECK_CONTAINS(text, "\n  -D, --device NAME        which device (default shm)\n");
	CHECK_CONTAINS(text, "\n  -h, --help               show this and exit\n");
	CHECK_CONTAINS(text, "\n      --version            show the version and exit\n");
	CHECK_CONTAINS(text, "\nexamples:\n  perf run --size 64KB\n");
	for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
		CHECK(strcspn(line, "\n") <= 60);
	free(text);
}

/* Too narrow for two columns: explanations have lines of their own. */
static void test_narrow_help(void)
{
	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);

	set_defaults();
	CHECK(file != NULL);
	options_help(&program, file, 40);
	fclose(file);
	CHECK_CONTAINS(text,
		       "\n  -s, --size SIZE\n        bytes of an operation (default\n        8)\n");
	for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
		CHECK(strcspn(line, "\n") <= 40);
	free(text);
}

/* Runs options_parse_or_exit() in a child; gives its exit code and what it printed. */
static int run_and_exit(const char *option, char output[1024])
{
	struct words *words = split(option);
	int fds[2], status;
	size_t used = 0;
	ssize_t length;
	pid_t pid;

	CHECK_EQ(pipe(fds), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		dup2(fds[1], STDERR_FILENO);
		options_parse_or_exit(&program, words->argc, words->argv, &result);
		exit(50);
	}
	close(fds[1]);
	while ((length = read(fds[0], output + used, 1023 - used)) > 0)
		used += (size_t)length;
	output[used] = '\0';
	close(fds[0]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void test_exit_codes(void)
{
	char output[1024];

	set_defaults();
	CHECK_EQ(run_and_exit("--json", output), 50);
	CHECK_STR(output, "");
	CHECK_EQ(run_and_exit("--version", output), 0);
	CHECK_STR(output, "perf (Remora) " REMORA_VERSION "\n");
	CHECK_EQ(run_and_exit("--help", output), 0);
	CHECK_CONTAINS(output, "usage: perf");
	CHECK_EQ(run_and_exit("--size=12x", output), 2);
	CHECK_STR(output, "perf: --size: '12x' is not a size; use e.g. 64KiB or 1GiB\n");
}

static void test_terminal_width(void)
{
	setenv("COLUMNS", "72", 1);
	CHECK_EQ(options_terminal_width(), 72);
	setenv("COLUMNS", "5", 1);
	CHECK_EQ(options_terminal_width(), 40);
	setenv("COLUMNS", "500", 1);
	CHECK_EQ(options_terminal_width(), 100);
}

static const struct test tests[] = {
	{"forms", test_forms},
	{"flag_with_word", test_flag_with_word},
	{"arguments", test_arguments},
	{"help_and_version", test_help_and_version},
	{"mistakes", test_mistakes},
	{"missing_argument", test_missing_argument},
	{"set_by_name", test_set_by_name},
	{"long_input", test_long_input},
	{"help_text", test_help_text},
	{"narrow_help", test_narrow_help},
	{"exit_codes", test_exit_codes},
	{"terminal_width", test_terminal_width},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "options_test", tests, TEST_COUNT(tests));
}
