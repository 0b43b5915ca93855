/*
 * Options: the command line of every tool, from one table.
 *
 *	static struct { bool json; uint64_t size; int op; } args = {.size = 8};
 *	static const char *const ops[] = {"read", "write", NULL};
 *
 *	static const struct option_spec specs[] = {
 *		OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row"),
 *		OPTION_SIZE("size", 's', &args.size, "bytes of an operation", .min = 1),
 *		OPTION_CHOICE("op", 'o', &args.op, ops, "what to do"),
 *	};
 *	static const struct options_program program = {
 *		.name = "fabric-perf",
 *		.description = "Measures a fabric provider.",
 *		.specs = specs,
 *		.spec_count = OPTIONS_COUNT(specs),
 *		.arguments = "serve|run [ADDRESS]",
 *		.min_arguments = 1,
 *		.max_arguments = 2,
 *	};
 *	struct options_result result;
 *	options_parse_or_exit(&program, argc, argv, &result);
 *
 * What a variable holds before parsing is its default, and --help shows it, unless the help text
 * has a "(default ...)" of its own. Understood are
 * `--name value`, `--name=value`, `-n value`, `-nvalue`, flags in a bundle (`-jv`), `--flag=no`,
 * `--flag false` for flags that are marked so, and `--`, after which everything is an argument.
 * Options and arguments may be mixed. --help, -h and --version exist in every tool. A later option
 * overrides an earlier one.
 *
 * The parser is pure: it prints nothing and never exits, it answers with an outcome and a message.
 * options_parse_or_exit() is the thin layer that tools use. A configuration file can be read by
 * handing its lines to options_set(), which takes an option's name and its value as text.
 *
 * A tool with commands that differ in their options has one options_program for each, named e.g.
 * "kv-client get", and parses the rest of the line by it: options_parse(&get, argc - 1, argv + 1).
 * Not thread-safe with regard to the variables in the table; used at start-up.
 */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_MESSAGE_SIZE 512
#define OPTIONS_UNLIMITED    INT32_MAX

enum option_kind {
	OPTION_KIND_FLAG,
	OPTION_KIND_INT,
	OPTION_KIND_UINT,
	OPTION_KIND_SIZE,     /* bytes: 64KB, 1GiB */
	OPTION_KIND_DURATION, /* nanoseconds: 10s, 250ms */
	OPTION_KIND_DOUBLE,
	OPTION_KIND_STRING,
	OPTION_KIND_CHOICE, /* the index of one of several words */
};

/* One option. Write it with the macros below, which fit the variable's type to the kind. */
struct option_spec {
	const char *name; /* without dashes */
	char letter;	  /* 0: the option has no short form */
	enum option_kind kind;
	union {
		bool *flag;
		int64_t *integer;
		uint64_t *number; /* uint, size and duration */
		double *real;
		const char **string;
		int *choice;
	} to;
	const char *help;
	const char *metavar; /* what --help calls the value; a default exists for each kind */
	const char *const *choices; /* ended by NULL */
	/* Ranges, including both ends. A pair of zeros is no limit; for numbers .max = 0 alone
	 * means no upper limit. */
	uint64_t min, max;	   /* uint, size, duration */
	int64_t int_min, int_max;  /* int */
	double real_min, real_max; /* double */
	bool *given;		   /* set true when the option occurs; may be NULL */
	bool takes_word;	   /* flag: `--flag true` and `--flag false` are understood, too */
	/* string: says what is wrong with a value, NULL: nothing; may be NULL. What it returns is
	 * read at once. */
	const char *(*fault)(const char *text);
};

#define OPTION_FLAG(long_name, short_letter, target, text, ...)                                    \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_FLAG,           \
		.to.flag = (target), .help = (text), __VA_ARGS__                                   \
	}
#define OPTION_INT(long_name, short_letter, target, text, ...)                                     \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_INT,            \
		.to.integer = (target), .help = (text), __VA_ARGS__                                \
	}
#define OPTION_UINT(long_name, short_letter, target, text, ...)                                    \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_UINT,           \
		.to.number = (target), .help = (text), __VA_ARGS__                                 \
	}
#define OPTION_SIZE(long_name, short_letter, target, text, ...)                                    \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_SIZE,           \
		.to.number = (target), .help = (text), __VA_ARGS__                                 \
	}
#define OPTION_DURATION(long_name, short_letter, target, text, ...)                                \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_DURATION,       \
		.to.number = (target), .help = (text), __VA_ARGS__                                 \
	}
#define OPTION_DOUBLE(long_name, short_letter, target, text, ...)                                  \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_DOUBLE,         \
		.to.real = (target), .help = (text), __VA_ARGS__                                   \
	}
#define OPTION_STRING(long_name, short_letter, target, text, ...)                                  \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_STRING,         \
		.to.string = (target), .help = (text), __VA_ARGS__                                 \
	}
#define OPTION_CHOICE(long_name, short_letter, target, words, text, ...)                           \
	{                                                                                          \
		.name = (long_name), .letter = (short_letter), .kind = OPTION_KIND_CHOICE,         \
		.to.choice = (target), .choices = (words), .help = (text), __VA_ARGS__             \
	}

/* Whether `word`, which may be NULL, belongs to the long form of this option before it. */
bool option_takes(const struct option_spec *spec, const char *word);

#define OPTIONS_COUNT(table) (sizeof(table) / sizeof((table)[0]))

struct options_program {
	const char *name;	 /* stands before every message */
	const char *description; /* a sentence or two */
	const struct option_spec *specs;
	size_t spec_count;
	/* The arguments as the usage line shows them, e.g. "FILE..."; NULL when there are none. */
	const char *arguments;
	int min_arguments;
	int max_arguments; /* OPTIONS_UNLIMITED is possible */
	/* The end of --help, as it is, but for a line "exit codes: ...", which is wrapped; may be
	 * NULL. If it begins with a blank it is a list of examples, and gets their heading; else
	 * its headings are its own. */
	const char *examples;
};

enum options_outcome {
	OPTIONS_OK,
	OPTIONS_HELP,	 /* --help was found: print it and exit 0 */
	OPTIONS_VERSION, /* --version was found: print it and exit 0 */
	OPTIONS_WRONG,	 /* the message says what: print it and exit 2 */
};

struct options_result {
	int argument_count;
	char **arguments;		    /* a part of argv; not ended by NULL */
	char message[OPTIONS_MESSAGE_SIZE]; /* without the program's name and newline */
};

/* Sets the variables of the table from the command line. argv[0] is skipped. The arguments are
 * gathered in argv[1] and following, so argv is reordered. */
enum options_outcome options_parse(const struct options_program *program, int argc, char **argv,
				   struct options_result *result);

/* Sets the option with the long name `name` from text, as `--name=text` would; strings are not
 * copied. Flags take yes, no, true, false, on, off, 1, 0. False, with a message that begins with
 * "--name: ", when there is no such option or the text is wrong; the variable is then unchanged. */
bool options_set(const struct options_program *program, const char *name, const char *text,
		 char message[OPTIONS_MESSAGE_SIZE]);

/* Writes what --help shows, in lines of at most `width` characters where words permit. */
void options_help(const struct options_program *program, FILE *file, int width);

/* The width of the terminal on stdout, or what COLUMNS says; 80 when nobody knows. */
int options_terminal_width(void);

/* Parses, and returns only when all is well: --help and --version are answered on stdout with exit
 * code 0, anything wrong with one line on stderr and exit code 2. */
void options_parse_or_exit(const struct options_program *program, int argc, char **argv,
			   struct options_result *result);

/* For what the table cannot express: prints "name: text" to stderr and exits 2. */
__attribute__((noreturn, cold, format(printf, 2, 3))) void options_fail(
	const struct options_program *program, const char *format, ...);

#endif
