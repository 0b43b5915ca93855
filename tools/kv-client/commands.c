/*
 * The commands of kv-client, the same from the command line and at the prompt.
 *
 * A command is a row of the table: its name, what its words are, how many there must and may be,
 * its options, and a function. A word that begins with two dashes is an option; "--" ends the
 * options, for keys and values that begin so.
 */
#include <string.h>

#include "base/options.h"
#include "client.h"

#define HELP_COLUMN   34
#define NARROW_COLUMN 9

static enum client_exit run_help(struct session *session, const struct command_words *words);

static const struct command {
	const char *name, *arguments, *help;
	const char *more; /* what `help COMMAND` says beyond that; may be NULL */
	int min, max;	  /* words behind the name */
	const char
		*options; /* "--flag --with-value=", beside --json; NULL: takes all words as are */
	command_fn run;
	unsigned bytes; /* bit i: the i-th word may hold any byte; others are text */
	bool takes_key; /* the first word is a key */
	bool is_alone;	/* needs no server */
} commands[] = {
	{"put", "KEY VALUE [--ttl TIME] [--if-absent | --replace]", "stores a value",
	 "VALUE is text, @FILE for what a file holds, or - for stdin; @@text is \"@text\".\n"
	 "--ttl TIME    it goes away after 10s, 500ms, 2h; a bare number is seconds\n"
	 "--if-absent   only if the key is not there\n"
	 "--replace     if there is no room for both, the old value goes before the new one "
	 "comes;\n"
	 "              if the put fails then, the key is gone\n",
	 2, 2, "--ttl= --if-absent --replace", run_put, 3, .takes_key = true},
	{"get", "KEY [--output FILE]", "shows a value, or writes it to a file",
	 "To a pipe or a file the bytes go as they are; on a terminal those that it cannot show\n"
	 "are written as \\xHH.\n"
	 "--output FILE   into a file, which is replaced when all of it has come\n",
	 1, 1, "--output=", run_get, 1, .takes_key = true},
	{"del", "KEY", "removes it", NULL, 1, 1, "", run_del, 1, .takes_key = true},
	{"delete", "KEY", "the same", NULL, 1, 1, "", run_del, 1, .takes_key = true},
	{"cas", "KEY VERSION VALUE", "stores it if the present one has this version",
	 "Every value has a version: put, cas and stat tell it.\n", 3, 3, "", run_cas, 5,
	 .takes_key = true},
	{"incr", "KEY [NUMBER]", "adds 1, or NUMBER, and shows the sum",
	 "A key that is not there counts from 0.\n", 1, 2, "", run_incr, 1, .takes_key = true},
	{"ttl", "KEY", "how long it is kept from now on", NULL, 1, 1, "", run_ttl, 1,
	 .takes_key = true},
	{"expire", "KEY TIME", "keeps it for 10s, 500ms ...; 0: for ever", NULL, 2, 2, "",
	 run_expire, 1, .takes_key = true},
	{"exists", "KEY", "1 or 0", NULL, 1, 1, "", run_exists, 1, .takes_key = true},
	{"stat", "KEY", "version, length, and how long it is kept", NULL, 1, 1, "", run_stat, 1,
	 .takes_key = true},
	{"scan", "[PREFIX*] [--limit N]", "keys, one a line",
	 "In no order; a key may be shown twice while others are stored. What is no ordinary\n"
	 "character is written as \\xHH, which every command reads back as that byte of a KEY.\n"
	 "PREFIX*     only keys that begin with PREFIX; the * may be left out\n"
	 "--limit N   no more than N\n",
	 0, 1, "--limit=", run_scan, 1},
	{"stats", "", "figures of the server", NULL, 0, 0, "", run_stats},
	{"ping", "", "how long the server takes to answer", NULL, 0, 0, "", run_ping},
	{"flush", "", "removes all keys", NULL, 0, 0, "", run_flush},
	{"top", "[--interval TIME] [--once]", "what the server does, on a live screen",
	 "q ends it. Without a terminal, and with --once, it is shown once.\n", 0, 0,
	 "--interval= --once", run_top},
	{"bench", "[OPERATIONS] [--value-size SIZE]", "measures the server: runs kv-bench",
	 "Any option of kv-bench may follow; --ops N is its --operations N. See kv-bench --help.\n",
	 0, WORDS_MAX, NULL, run_bench, .is_alone = true},
	{"doctor", "[OPTION...]", "checks machine and server: runs kv-doctor",
	 "Any option of kv-doctor may follow. See kv-doctor --help.\n", 0, WORDS_MAX, NULL,
	 run_doctor, .is_alone = true},
	{"help", "[COMMAND]", "what a command does, or all of them", NULL, 0, 1, "", run_help,
	 .is_alone = true},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

/* ------------------------------------------------------------------------------------------
 * Finding
 */

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

const char *command_name(size_t n)
{
	if (n < COMMAND_COUNT)
		return commands[n].name;
	return n == COMMAND_COUNT ? "quit" : NULL;
}

const char *command_arguments(const char *name)
{
	const struct command *command = find_command(name);

	return command ? command->arguments : NULL;
}

bool command_takes_key(const char *name)
{
	const struct command *command = find_command(name);

	return command && command->takes_key;
}

bool command_connects(const char *name)
{
	return !find_command(name)->is_alone;
}

/* ------------------------------------------------------------------------------------------
 * Words and options
 */

/* Whether `options` names it, and whether a value follows. */
static bool knows_option(const char *options, const char *word, bool *has_value)
{
	size_t length = strlen(word);

	*has_value = false;
	if (strcmp(word, "--json") == 0)
		return true;
	while ((options = strstr(options, word))) {
		*has_value = options[length] == '=';
		if (*has_value || !options[length] || options[length] == ' ')
			return true;
		options += length;
	}
	return false;
}

static bool is_text(const struct word *word)
{
	return strlen(word->text) == word->length;
}

static bool is_option(const struct word *word)
{
	return !word->is_quoted && strncmp(word->text, "--", 2) == 0;
}

/* Takes the option at words[*at]. NULL, or what is wrong. */
static const char *take_option(const struct command *command, struct word *words, int count,
			       int *at, struct command_words *result)
{
	bool has_value;

	if (!knows_option(command->options, words[*at].text, &has_value))
		return "no such option: behind -- every word is taken as it is";
	if (has_value && (*at + 1 >= count || is_option(&words[*at + 1])))
		return "no value follows: behind -- every word is taken as it is";
	if (has_value && !is_text(&words[*at + 1]))
		return "a zero byte in its value";
	if (result->option_count == COMMAND_OPTIONS_MAX)
		return "too many options";
	result->options[result->option_count].name = words[*at].text;
	result->options[result->option_count++].value = has_value ? words[*at + 1].text : "";
	*at += has_value ? 2 : 1;
	return NULL;
}

/* NULL, or what is wrong with the option words[*at]; "": with another word. Words that are no
 * options are gathered in words[1] and following. */
static const char *take_words(const struct command *command, struct word *words, int count, int *at,
			      struct command_words *result)
{
	bool options = command->options != NULL;

	result->words = words + 1;
	for (*at = 1; *at < count;) {
		if (options && is_option(&words[*at]) && words[*at].text[2]) {
			const char *wrong = take_option(command, words, count, at, result);

			if (wrong)
				return wrong;
			continue;
		}
		if (options && is_option(&words[*at])) {
			options = false;
			(*at)++;
			continue;
		}
		if (result->count == command->max)
			return "";
		/* Never ahead of where we read: nothing unread is overwritten. */
		result->words[result->count++] = words[(*at)++];
	}
	return NULL;
}

const char *command_option(const struct command_words *words, const char *name)
{
	/* The last one counts. */
	for (int i = words->option_count - 1; i >= 0; i--)
		if (strcmp(words->options[i].name, name) == 0)
			return words->options[i].value;
	return NULL;
}

static enum client_exit show_unknown(const struct session *session, const char *name)
{
	const char *guess = word_guess(name, command_name);

	if (guess)
		return show_error(session, CLIENT_USAGE, "unknown command '%s': did you mean %s?",
				  name, guess);
	return show_error(session, CLIENT_USAGE, "unknown command '%s': %s lists all", name,
			  session->prompt ? "help" : "--help");
}

static bool parse(const struct session *session, struct word *words, int count,
		  const struct command **command, struct command_words *result)
{
	const char *wrong;
	int at;

	*result = (struct command_words){0};
	*command = find_command(words[0].text);
	if (!*command) {
		show_unknown(session, words[0].text);
		return false;
	}
	wrong = take_words(*command, words, count, &at, result);
	if (wrong && *wrong) {
		show_error(session, CLIENT_USAGE, "%s %s: %s", words[0].text, words[at].text,
			   wrong);
		return false;
	}
	if (wrong || result->count < (*command)->min) {
		show_error(session, CLIENT_USAGE, "usage: %s %s", (*command)->name,
			   (*command)->arguments);
		return false;
	}
	for (int i = 0; i < result->count; i++) {
		if (((*command)->bytes >> i & 1) || is_text(&result->words[i]))
			continue;
		show_error(session, CLIENT_USAGE,
			   "%s '%s': a zero byte: only keys and values may "
			   "hold one",
			   words[0].text, result->words[i].text);
		return false;
	}
	return true;
}

bool command_check(const struct session *session, const struct word *words, int count)
{
	struct word copy[WORDS_MAX];
	const struct command *command;
	struct command_words result;

	/* Parsing moves them. */
	memcpy(copy, words, (size_t)count * sizeof(*words));
	return parse(session, copy, count, &command, &result);
}

enum client_exit command_run(struct session *session, struct word *words, int count)
{
	const struct command *command;
	struct command_words result;
	bool json = session->json;
	enum client_exit code;

	if (!parse(session, words, count, &command, &result))
		return CLIENT_USAGE;
	if (command->takes_key)
		word_unescape(&result.words[0]);
	session->json |= command_option(&result, "--json") != NULL;
	ask_begin();
	code = command->run(session, &result);
	session->json = json;
	return code;
}

/* ------------------------------------------------------------------------------------------
 * Help
 */

void command_list(FILE *file, int width)
{
	bool is_narrow = width < HELP_COLUMN + 40;

	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const struct command *command = &commands[i];
		int column = fprintf(file, "  %-*s", *command->arguments ? 7 : 0, command->name);

		/* In a narrow terminal, and behind what is long, in the next line. */
		if (is_narrow) {
			show_wrapped(file, command->arguments, column, NARROW_COLUMN, width);
			fprintf(file, "%*s", NARROW_COLUMN, "");
			show_wrapped(file, command->help, NARROW_COLUMN, NARROW_COLUMN, width);
			continue;
		}
		column += fprintf(file, "%s", command->arguments);
		if (column > HELP_COLUMN - 2) {
			fputc('\n', file);
			column = 0;
		}
		fprintf(file, "%*s%s\n", HELP_COLUMN - column, "", command->help);
	}
}

static void help_json(const struct command *command)
{
	json_begin();
	json_text("command", command->name);
	json_text("arguments", command->arguments);
	json_text("help", command->help);
	if (command->more)
		json_text("more", command->more);
	json_end();
}

static enum client_exit run_help(struct session *session, const struct command_words *words)
{
	const struct command *command;

	if (!words->count && session->json) {
		for (size_t i = 0; i < COMMAND_COUNT; i++)
			help_json(&commands[i]);
		return CLIENT_OK;
	}
	if (!words->count) {
		command_list(stdout, options_terminal_width());
		if (session->prompt)
			puts("  quit, or Ctrl-D");
		return CLIENT_OK;
	}
	command = find_command(words->words[0].text);
	if (!command)
		return show_unknown(session, words->words[0].text);
	if (session->json)
		help_json(command);
	else
		printf("%s %s\n%s\n%s", command->name, command->arguments, command->help,
		       command->more ? command->more : "");
	return CLIENT_OK;
}
