/*
 * kv-client: a kv-server's keys and values, from the command line or at a prompt.
 *
 *	kv-client [OPTION]... COMMAND [WORD...]
 *	kv-client [OPTION]... [repl]		reads commands from stdin, one a line
 *
 * A command that makes no sense is refused before anything is connected.
 */
#include <string.h>

#include "client.h"

static enum client_exit connect_to(struct session *session)
{
	int status = ask_connect(session);

	if (status == KV_NO_MEMORY && !session->client && !session->config->is_grpc)
		return show_error(session, CLIENT_FAILED, "no memory for a client");
	return status == KV_OK ? CLIENT_OK : show_unconnected(session, status);
}

/* The words of the command line. False: there are too many, which has been said. */
static bool take_words(const struct session *session, struct word *words)
{
	const struct client_config *config = session->config;

	if (config->word_count > WORDS_MAX) {
		show_error(session, CLIENT_USAGE, "too many words: a command has at most %d",
			   WORDS_MAX);
		return false;
	}
	for (int i = 0; i < config->word_count; i++)
		words[i] = (struct word){config->words[i], strlen(config->words[i]), false};
	return true;
}

static enum client_exit run(struct session *session)
{
	const struct client_config *config = session->config;
	struct word words[WORDS_MAX];
	bool prompt = !config->word_count ||
		      (config->word_count == 1 && strcmp(config->words[0], "repl") == 0);
	enum client_exit code = CLIENT_OK;

	if (!prompt &&
	    (!take_words(session, words) || !command_check(session, words, config->word_count)))
		return CLIENT_USAGE;
	if (prompt || command_connects(config->words[0]))
		code = connect_to(session);
	if (code != CLIENT_OK)
		return code;
	return prompt ? prompt_run(session) : command_run(session, words, config->word_count);
}

int main(int argc, char **argv)
{
	struct client_config config;
	struct session session = {.config = &config};
	enum client_exit code;

	client_parse(argc, argv, &config);
	session.json = config.json;
	interrupt_init();
	code = run(&session);
	ask_close(&session);
	session.json = false;
	if (fflush(stdout) && code == CLIENT_OK)
		code = show_error(&session, CLIENT_FAILED, "stdout cannot be written");
	return code;
}
